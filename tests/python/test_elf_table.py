"""The runtime's own table of AMD code object numbers is that of the arch table."""

from __future__ import annotations

import re
from pathlib import Path

from aotbuild.target import ARCHES

ELF_CC = Path(__file__).parents[2] / "runtime" / "src" / "elf.cc"


def _runtime_table() -> list[tuple[str, int]]:
    """The entries of kAmdMachs in elf.cc."""
    text = ELF_CC.read_text(encoding="utf-8")
    table = re.search(r"kAmdMachs\[\] = \{(.*?)\n\};", text, re.DOTALL)
    assert table is not None, f"no table kAmdMachs in {ELF_CC}"
    entries = re.findall(r'\{"(\w+)", 0x([0-9A-Fa-f]+)\}', table[1])
    return [(name, int(mach, 16)) for name, mach in entries]


def test_amd_numbers_agree() -> None:
    expected = [(arch.name, arch.elf_flags) for arch in ARCHES if arch.vendor == "hip"]
    assert sorted(_runtime_table()) == sorted(expected)


def test_cuda_numbers_follow_from_names() -> None:
    """The runtime has no table for CUDA: it reads the number off the name."""
    cuda = [arch for arch in ARCHES if arch.vendor == "cuda"]
    assert cuda
    for arch in cuda:
        assert arch.name == f"sm_{arch.elf_flags}"
