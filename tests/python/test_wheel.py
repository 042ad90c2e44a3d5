"""The wheel as people get it: its files, links between its libraries, and what it exports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "aotbuild/lib/libaotbuild.so.0"
MEBIBYTE = 1 << 20


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel named by AOTBUILD_TEST_WHEEL, which CI sets, or else one built here."""
    if given := os.environ.get("AOTBUILD_TEST_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = folder.glob("aotbuild-*.whl")
    return built


@pytest.fixture(scope="session")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def native(unpacked: Path) -> Path:
    (module,) = (unpacked / "aotbuild").glob("_native.*so")
    return module


def dynamic(path: Path, tag: str) -> list[str]:
    """Values of a tag in an ELF file's dynamic section."""
    command = ["readelf", "-dW", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def test_nothing_is_there_that_does_not_belong(names: set[str]) -> None:
    allowed = re.compile(
        r"""aotbuild/[a-z_]+\.pyi?
        | aotbuild/py\.typed
        | aotbuild/_native\.[\w.-]*so
        | aotbuild/lib/libaotbuild\.so\.0
        | aotbuild/lib/cmake/aotbuild/aotbuild(Config|ConfigVersion|Targets|Targets-release)\.cmake
        | aotbuild/include/aotbuild/\w+\.(h|hpp)
        | aotbuild/images/index\.json
        | aotbuild/kernels/(\w+/)?\w+\.py
        | aotbuild/kernels/\w+/tuned/\w+\.csv
        | aotbuild/kernels/\w+/\w+\.(md|csv|toml)
        | aotbuild-[\d.]+\.dist-info/[\w./]+""",
        re.VERBOSE,
    )
    assert sorted(name for name in names if not allowed.fullmatch(name)) == []


def test_everything_is_there(names: set[str]) -> None:
    sources = {f"aotbuild/{path.name}" for path in (ROOT / "aotbuild").glob("*.py*")}
    kernels = {
        f"aotbuild/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("kernels/*/*.py")
    }
    headers = {
        f"aotbuild/{path.relative_to(ROOT / 'runtime').as_posix()}"
        for path in ROOT.glob("runtime/include/aotbuild/*.h*")
    }
    assert len(kernels) >= 2
    assert sorted((sources | kernels | headers | {"aotbuild/py.typed", LIBRARY}) - names) == []
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("dist-info/entry_points.txt") for name in names)


def test_the_module_finds_its_library_wherever_it_lies(unpacked: Path) -> None:
    module = native(unpacked)
    assert dynamic(module, "RUNPATH") + dynamic(module, "RPATH") == ["$ORIGIN/lib"]
    assert "libaotbuild.so.0" in dynamic(module, "NEEDED")
    assert dynamic(unpacked / LIBRARY, "SONAME") == ["libaotbuild.so.0"]
    assert dynamic(unpacked / LIBRARY, "RUNPATH") + dynamic(unpacked / LIBRARY, "RPATH") == []


def test_it_needs_only_what_every_system_has(unpacked: Path) -> None:
    system = re.compile(r"lib(c|m|dl|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[\w-]+\.so\.\d")
    needed = {*dynamic(unpacked / LIBRARY, "NEEDED"), *dynamic(native(unpacked), "NEEDED")}
    foreign = {name for name in needed if not system.fullmatch(name)}
    assert foreign == {"libaotbuild.so.0"}  # so neither a GPU driver nor a libzstd


def test_it_exports_the_c_abi_and_nothing_else(unpacked: Path) -> None:
    command = ["nm", "-D", "--defined-only", str(unpacked / LIBRARY)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    exported = {
        name.partition("@@")[0]
        for kind, name in (line.split()[-2:] for line in text.splitlines())
        if kind != "A"  # the version's own symbol
    }
    header = (ROOT / "runtime/include/aotbuild/aotbuild.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"AOTBUILD_API [\w\s*]+?\b(aotbuild_\w+)\(", header))
    assert len(declared) >= 10
    assert exported == declared


def test_the_library_is_small(unpacked: Path) -> None:
    library = unpacked / LIBRARY
    assert library.stat().st_size < MEBIBYTE
    command = ["readelf", "-SW", str(library)]
    sections = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert ".symtab" not in sections  # stripped


def test_no_build_path_is_inside(unpacked: Path) -> None:
    for path in (unpacked / LIBRARY, native(unpacked)):
        data = path.read_bytes()
        assert str(ROOT).encode() not in data, path.name
        assert b"/pip-" not in data, path.name
