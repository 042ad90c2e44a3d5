"""What several test modules share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import make_packs
import pytest
from fetching import TO, Fetch, Told

import aotbuild
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

    def attention_backward(self, **arguments: Any) -> None:
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
        producer = f"aotbuild {aotbuild.__version__}"
        pack = build_pack(family, arch, "smoke", made, {}, producer)
        operators = tuple(replace(operator, contract=contract) for operator in pack.operators)
        file = folder / arch.name / "attention.aotpack"
        write_file(file, encode(replace(pack, operators=operators)))
        return file

    return write


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel named by AOTBUILD_TEST_WHEEL, which CI sets, or else one built here."""
    if given := os.environ.get("AOTBUILD_TEST_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("aotbuild-*.whl")
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(folder / "many"), str(built)]
    subprocess.run(command, check=True)
    (repaired,) = (folder / "many").iterdir()
    return repaired


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-ins for the drivers of tests/cpp, for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("stand_ins")
    for vendor, soname in (("cuda", "libcuda.so.1"), ("hip", "libamdhip64.so.7")):
        command = (
            "c++", "-std=c++17", "-shared", "-fPIC", f"-I{ROOT}/runtime/include",
            f"-I{ROOT}/runtime/src", f"-Wl,-soname,{soname}",
            f"{ROOT}/tests/cpp/fake_{vendor}.cc", "-o", f"{folder / soname}",
        )  # fmt: skip
        subprocess.run(command, check=True)
    return folder


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test in an empty folder, without settings from outside."""
    for name in list(os.environ):
        if name.startswith("AOTBUILD_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fetch(own_folder: None, capsys: pytest.CaptureFixture[str]) -> Fetch:
    """Runs `aotbuild fetch` here; into TO unless told otherwise."""
    from aotbuild import cli

    def run(*arguments: str, to: bool = True) -> Told:
        where = ["--to", str(TO)] if to else []
        status = cli.run(["fetch", *where, *arguments])
        return Told(status, *capsys.readouterr())

    return run
