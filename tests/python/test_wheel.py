"""The wheel as people get it: its files, links between its libraries, and what it exports."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import aotbuild
from aotbuild.target import ARCHES

ROOT = Path(__file__).parents[2]
LIBRARY = "aotbuild/lib/libaotbuild.so.0"
MEBIBYTE = 1 << 20


@pytest.fixture(scope="session")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


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
        | aotbuild/share/aotbuild/runtime\.json
        | aotbuild/lib/cmake/aotbuild/(AotbuildProvision\.cmake|index\.json)
        | aotbuild/lib/cmake/aotbuild/aotbuild(Config|ConfigVersion|Targets|Targets-release)\.cmake
        | aotbuild/lib/cmake/aotbuild/AotbuildProvision\.cmake
        | aotbuild/share/aotbuild/runtime\.json
        | aotbuild/lib/cmake/aotbuild/index\.json
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
    others = {
        "aotbuild/py.typed",
        "aotbuild/share/aotbuild/runtime.json",
        *(
            f"aotbuild/lib/cmake/aotbuild/{name}"
            for name in ("AotbuildProvision.cmake", "index.json")
        ),
    }
    assert sorted((sources | kernels | headers | others | {LIBRARY}) - names) == []
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("dist-info/entry_points.txt") for name in names)


def test_every_arch_is_an_extra_that_brings_images_of_this_version(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    extras = {arch.name.replace("_", "-") for arch in ARCHES}
    assert set(re.findall(r"^Provides-Extra: (.*)$", text, re.M)) == {"compile", "release", *extras}
    required = re.findall(r"^Requires-Dist: (aotbuild-images.*?) *; *(.*)$", text, re.M)
    version = aotbuild.__version__
    assert sorted((name, re.sub(r"[\s'\"]", "", when)) for name, when in required) == sorted(
        (f"aotbuild-images-{extra}=={version}", f"extra=={extra}") for extra in extras
    )


def test_the_name_is_one_that_an_index_takes(wheel: Path) -> None:
    """An index refuses linux_x86_64. Python 3.12 and later share a wheel, by the stable ABI."""
    minor = sys.version_info.minor
    python = "cp312-abi3" if minor >= 12 else f"cp3{minor}-cp3{minor}"
    pattern = rf"aotbuild-[\d.]+-{python}-manylinux_2_\d+_(x86_64|aarch64)\.whl"
    assert re.fullmatch(pattern, wheel.name)


def test_the_glibc_that_the_name_promises_is_enough(wheel: Path, unpacked: Path) -> None:
    promised = int(re.findall(r"manylinux_2_(\d+)_", wheel.name)[0])
    for path in (unpacked / LIBRARY, native(unpacked)):
        command = ["readelf", "-VW", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        needed = {int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", text)}
        assert needed
        assert max(needed) <= promised


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
