"""A built runtime that is to be published: an installed prefix, whose manifest is compared with
what the library itself says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotbuild.archive import Member
from aotbuild.errors import ReleaseError, UsageError
from aotbuild.manifest import MANIFEST, Manifest, read_manifest

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

LIBRARY = "lib/libaotbuild.so"
#: What the archive holds; a prefix with anything else is not the runtime's alone.
_BELONGS = re.compile(
    r"lib/libaotbuild\.so(\.[0-9]+)*|lib/cmake/aotbuild/[^/]+|include/aotbuild/[^/]+|"
    + re.escape(MANIFEST)
)
_REQUIRED = (LIBRARY, MANIFEST, "include/aotbuild/aotbuild.h", "lib/cmake/aotbuild/")
#: Libraries that every system has which has the libc and a C++ compiler.
_SYSTEM = re.compile(
    r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so\.[0-9]+|ld-linux[\w-]*\.so\.[0-9]+"
)
_CPUS = {
    "EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_PPC64": "ppc64le", "EM_RISCV": "riscv64"
}  # fmt: skip
_GLIBC = re.compile(r"GLIBC_([0-9]+)\.([0-9]+)(\.[0-9]+)?")
#: Features of glibc that are versions by name, and the release that brought them.
_GLIBC_FEATURES = {"GLIBC_ABI_DT_RELR": (2, 36)}


@dataclass(frozen=True)
class Prebuilt:
    """`libc` as an index names it: the oldest that the library runs with."""

    manifest: Manifest
    libc: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class _Library:
    """What the library's ELF headers say."""

    cpu: str
    soname: str
    needed: tuple[str, ...]
    search_paths: tuple[str, ...]
    glibc: tuple[int, int]


def read_prebuilt(prefix: Path, version: str) -> Prebuilt:
    """The runtime that is installed in `prefix`, a folder of its own.

    Raises ReleaseError if it does not run wherever its manifest says: it is another version's, was
    built for another processor, needs libraries that not every system has, or names a place of the
    machine that built it; UsageError where pyelftools is not installed.
    """
    members = tuple(_members(prefix))
    names = [member.name for member in members]
    for name in _REQUIRED:
        if name not in names and not any(name[-1] == "/" and n.startswith(name) for n in names):
            raise ReleaseError(
                f"{prefix}: {name} is missing, so it is no installed runtime. Configure with "
                "-DCMAKE_INSTALL_LIBDIR=lib, and install into an empty folder"
            )
    manifest = _manifest(prefix / MANIFEST)
    if manifest.version != version:
        raise ReleaseError(
            f"{prefix / MANIFEST}: version is {manifest.version!r}, this aotbuild is {version!r}"
        )
    library = _read_library(prefix / LIBRARY)
    _compare(prefix, manifest, library)
    for member in members:
        if str(prefix.resolve()).encode() in member.data:
            raise ReleaseError(f"{prefix / member.name} names the folder that it is in")
    return Prebuilt(manifest, "glibc-{}.{}".format(*library.glibc), members)


def _members(prefix: Path) -> Iterator[Member]:
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if not _BELONGS.fullmatch(name):
            raise ReleaseError(
                f"{prefix}: {name} does not belong to an installed runtime; install it into an "
                "empty folder"
            )
        if path.is_symlink():
            yield Member(name, link=str(path.readlink()))
        else:
            yield Member(name, path.read_bytes(), executable=".so" in path.name)


def _manifest(file: Path) -> Manifest:
    try:
        manifest = read_manifest(file)
    except ValueError as error:
        raise ReleaseError(str(error)) from error
    if not manifest.toolkits:
        raise ReleaseError(
            f"{file}: toolkits is empty, so no machine would match. Build it with "
            "AOTBUILD_CUDA_INCLUDE_DIRS or AOTBUILD_HIP_INCLUDE_DIRS, for its declarations to be "
            "compared with a toolkit's headers"
        )
    return manifest


def _read_library(path: Path) -> _Library:
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise UsageError(
            "publishing a runtime needs pyelftools; install it with: "
            "pip install 'aotbuild[release]'"
        ) from error
    with path.open("rb") as file:
        try:
            return _facts(path, ELFFile(file))
        except ELFError as error:
            raise ReleaseError(f"{path} is no ELF file, or damaged: {error}") from error


def _facts(path: Path, elf: ELFFile) -> _Library:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.gnuversions import GNUVerNeedSection

    tags: dict[str, list[str]] = {name: [] for name in ("soname", "needed", "rpath", "runpath")}
    versions: list[str] = []
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                name = str(tag.entry.d_tag).removeprefix("DT_").lower()
                if name in tags:
                    tags[name].append(getattr(tag, name))
        elif isinstance(section, GNUVerNeedSection):
            for _, needs in section.iter_versions():
                versions += (need.name for need in needs)
    machine = elf["e_machine"]
    return _Library(
        cpu=_CPUS.get(machine, str(machine)),
        soname=", ".join(tags["soname"]),
        needed=tuple(tags["needed"]),
        search_paths=(*tags["rpath"], *tags["runpath"]),
        glibc=_oldest_glibc(path, [name for name in versions if name.startswith("GLIBC_")]),
    )


def _oldest_glibc(path: Path, versions: list[str]) -> tuple[int, int]:
    found = []
    for version in versions:
        match = _GLIBC.fullmatch(version)
        if match is None and version not in _GLIBC_FEATURES:
            raise ReleaseError(f"{path} needs {version}, which belongs to no release of glibc")
        found.append((int(match[1]), int(match[2])) if match else _GLIBC_FEATURES[version])
    if not found:
        raise ReleaseError(f"{path} needs no version of glibc; only runtimes for it are published")
    return max(found)


def _compare(prefix: Path, manifest: Manifest, library: _Library) -> None:
    where = prefix / LIBRARY
    if library.cpu != manifest.cpu:
        raise ReleaseError(
            f"{where} is for {library.cpu}, {prefix / MANIFEST} says {manifest.cpu!r}"
        )
    soname = f"libaotbuild.so.{manifest.abi}"
    if library.soname != soname:
        raise ReleaseError(f"{where} has soname {library.soname!r}, its ABI asks for {soname!r}")
    if library.search_paths:
        paths = ", ".join(map(repr, library.search_paths))
        raise ReleaseError(f"{where} searches libraries in {paths} (RPATH); build it without")
    foreign = [name for name in library.needed if not _SYSTEM.fullmatch(name)]
    if foreign:
        raise ReleaseError(
            f"{where} needs {', '.join(foreign)}, which not every system has. A runtime to publish "
            "is built with -DAOTBUILD_STATIC_ZSTD=ON, and opens drivers at run time"
        )
