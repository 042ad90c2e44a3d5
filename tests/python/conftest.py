"""What several test modules of the Python face share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import make_packs
import pytest

from aotbuild.arguments import Bound, physical
from aotbuild.assemble import build_pack
from aotbuild.families import load_families
from aotbuild.pack import encode, write_file
from aotbuild.plan import Profile, plan
from aotbuild.records import CompiledImage, LaunchFacts
from aotbuild.target import parse_arch


class Recorder:
    """Takes the place of a library's native part and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.native = self

    def attention_forward(self, **arguments: Any) -> None:
        self.calls.append(arguments)

    def launch(self, *arguments: Any) -> None:
        self.calls.append({"launch": arguments})


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def write_hollow_pack() -> Callable[..., Path]:
    """Writes a smoke pack of attention that dispatches as a compiled one does, around code objects
    that are bare ELF headers: enough for a runtime, nothing for a GPU. And needs no compiler."""

    def write(folder: Path, arch_name: str, *, contract: int = 1) -> Path:
        (family,) = load_families(["attention"], ())
        arch = parse_arch(arch_name).arch
        machine = 190 if arch.vendor == "cuda" else 224
        made = []
        for number, variant in enumerate(plan(family, arch, Profile.SMOKE)):
            operator = family.family.operator(variant.operator)
            found = physical(operator, variant, Bound({}, {}, {}), {})
            facts = LaunchFacts(operator.kernel, found, shared=0, threads=128)
            code = bytearray(make_packs.elf_header(machine, arch.elf_flags, bytes([number]) * 400))
            code[8] = 7 if arch.vendor == "cuda" else code[8]  # the ABI of cubins
            made.append((variant, CompiledImage(facts, {}, bytes(code))))
        pack = build_pack(family, arch, "smoke", made, {}, "aotbuild test")
        operators = tuple(replace(operator, contract=contract) for operator in pack.operators)
        file = folder / arch.name / "attention.aotpack"
        write_file(file, encode(replace(pack, operators=operators)))
        return file

    return write
