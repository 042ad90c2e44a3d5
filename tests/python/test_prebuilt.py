"""A built runtime that is to be published: what is wrong with it is found first."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotbuild
from aotbuild.archive import extract, write_archive
from aotbuild.errors import ReleaseError, UsageError
from aotbuild.prebuilt import LIBRARY, MANIFEST, Prebuilt, _oldest_glibc, read_prebuilt

Link = Callable[..., Path]


def read(prefix: Path) -> Prebuilt:
    return read_prebuilt(prefix, aotbuild.__version__)


def refused(prefix: Path, says: str) -> None:
    with pytest.raises(ReleaseError) as caught:
        read(prefix)
    assert says in str(caught.value)
    assert str(prefix) in str(caught.value)


@pytest.fixture
def prefix(built_prefix: Path, tmp_path: Path) -> Path:
    """One that a test may change."""
    return Path(shutil.copytree(built_prefix, tmp_path / "prefix", symlinks=True))


@pytest.fixture
def link(prefix: Path) -> Link:
    """Puts another library into the prefix, linked with the options given."""

    def make(*options: str, code: str = 'int puts(const char*); int f(void) {return puts("");}'):
        (library,) = (p for p in (prefix / "lib").glob("lib*.so*") if not p.is_symlink())
        command = ["cc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", str(library)]
        command += ["-Wl,-soname,libaotbuild.so.0", *options]
        subprocess.run(command, input=code, text=True, check=True)
        return prefix

    return make


def say(prefix: Path, **changes: Any) -> Path:
    file = prefix / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return prefix


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("share", f"{MANIFEST} is missing"),
        ("lib/libaotbuild.so", f"{LIBRARY} is missing"),
        ("include", "include/aotbuild/aotbuild.h is missing"),
        ("lib/cmake", "lib/cmake/aotbuild/ is missing"),
    ],
)
def test_what_is_missing(prefix: Path, name: str, says: str) -> None:
    path = prefix / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused(prefix, says)


def test_a_folder_without_anything(tmp_path: Path) -> None:
    refused(tmp_path, "missing")
    refused(tmp_path / "none", "missing")


def test_a_library_in_another_folder(prefix: Path) -> None:
    """As GNUInstallDirs has it on some distributions; CMake looks in lib/."""
    (prefix / "lib").rename(prefix / "lib64")
    refused(prefix, "lib64/")


@pytest.mark.parametrize(
    "name", ["bin/tool", "lib/libother.so", "share/aotbuild/images/gfx942/x.aotpack", "lib/x.a"]
)
def test_what_does_not_belong(prefix: Path, name: str) -> None:
    (prefix / name).parent.mkdir(parents=True, exist_ok=True)
    (prefix / name).touch()
    refused(prefix, f"{name} does not belong")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": "0.0.9"}, "version is '0.0.9'"),
        ({"cpu": "s390x"}, "says 's390x'"),
        ({"abi": 1}, "has soname 'libaotbuild.so.0', its ABI asks for 'libaotbuild.so.1'"),
        ({"toolkits": []}, "toolkits is empty"),
        ({"toolkits": "cuda-13"}, "toolkits is 'cuda-13'"),
        ({"contracts": None}, "contracts is None"),
        ({"abi": True}, "abi is True"),
        ({"more": 1}, "expected an object of"),
    ],
)
def test_a_manifest_that_is_wrong(prefix: Path, changes: dict[str, Any], says: str) -> None:
    refused(say(prefix, **changes), says)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_manifest_that_is_none(prefix: Path, text: str) -> None:
    (prefix / MANIFEST).write_text(text)
    refused(prefix, "runtime.json")


def test_another_processor(prefix: Path) -> None:
    (library,) = (p for p in (prefix / "lib").glob("lib*.so*") if not p.is_symlink())
    data = bytearray(library.read_bytes())
    data[18:20] = (22).to_bytes(2, "little")  # e_machine: S/390
    library.write_bytes(data)
    refused(prefix, "is for EM_S390")


@pytest.mark.parametrize("size", [0, 3, 60, 64, 1000, 20_000])
def test_a_library_that_is_cut_off(prefix: Path, size: int) -> None:
    (library,) = (p for p in (prefix / "lib").glob("lib*.so*") if not p.is_symlink())
    library.write_bytes(library.read_bytes()[:size])
    refused(prefix, "no ELF file, or damaged")


def test_another_soname(link: Link) -> None:
    refused(link("-Wl,-soname,libaotbuild.so.0.1.0"), "has soname 'libaotbuild.so.0.1.0'")


@pytest.mark.parametrize("kind", ["--enable-new-dtags", "--disable-new-dtags"])
def test_a_place_to_search_libraries(link: Link, kind: str) -> None:
    refused(link(f"-Wl,{kind}", "-Wl,-rpath,/opt/rocm/lib"), "'/opt/rocm/lib' (RPATH)")


def test_a_library_that_not_every_system_has(link: Link, tmp_path: Path) -> None:
    """As a runtime that is linked to a driver, which would tie it to one version of a toolkit."""
    driver = tmp_path / "libamdhip64.so"
    command = ["cc", "-shared", "-xc", "/dev/null", "-Wl,-soname,libamdhip64.so.6", "-o", driver]
    subprocess.run(command, check=True)
    refused(link("-Wl,--no-as-needed", str(driver)), "needs libamdhip64.so.6, which")
    refused(link("-Wl,--no-as-needed", "-lzstd"), "needs libzstd.so.1, which")


def test_a_library_without_a_libc(link: Link) -> None:
    refused(link("-nostdlib", code="int f(void) { return 0; }"), "no version of glibc")


def test_versions_of_glibc() -> None:
    path = Path("lib")
    assert _oldest_glibc(path, ["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9"]) == (2, 34)
    assert _oldest_glibc(path, ["GLIBC_2.2.5", "GLIBC_ABI_DT_RELR"]) == (2, 36)
    with pytest.raises(ReleaseError, match="GLIBC_PRIVATE"):
        _oldest_glibc(path, ["GLIBC_2.34", "GLIBC_PRIVATE"])


def test_a_file_that_names_its_folder(prefix: Path) -> None:
    config = prefix / "lib/cmake/aotbuild/aotbuildConfig.cmake"
    config.write_text(f"set(ROOT {prefix.resolve()})\n")
    refused(prefix, "aotbuildConfig.cmake names the folder that it is in")


def test_without_pyelftools(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    with pytest.raises(UsageError, match=r"pip install 'aotbuild\[release\]'"):
        read(prefix)


def test_a_built_runtime(prefix: Path, tmp_path: Path) -> None:
    found = read(prefix)
    assert found.manifest.cpu == platform.machine()
    assert found.manifest.toolkits == ("cuda-13", "rocm-7.2")
    text = subprocess.run(
        ["readelf", "-VW", str(prefix / LIBRARY)], check=True, capture_output=True, text=True
    ).stdout
    newest = max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.([0-9]+)", text))
    assert found.libc == f"glibc-2.{newest}"
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(write_archive(found.members))
    extract(archive, tmp_path / "again", limit=1 << 26)
    for path in prefix.rglob("*"):
        copy = tmp_path / "again" / path.relative_to(prefix)
        assert copy.is_symlink() == path.is_symlink()
        assert copy.is_dir() or copy.read_bytes() == path.read_bytes()
    assert read(tmp_path / "again") == found
