"""A release: packs, built runtimes and the source as archives and wheels, and the index of them.

Equal inputs give equal bytes. docs/release-index.md tells how to publish what is written here.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotbuild.archive import Member, extract, write_archive
from aotbuild.errors import IndexFileError, PackError, ReleaseError, UsageError
from aotbuild.image_wheel import write_wheel
from aotbuild.index import (
    INDEX_FILE,
    SIGNATURE_FILE,
    Artifact,
    Index,
    Kind,
    PublishedArch,
    read_index,
    write_index,
)
from aotbuild.pack import check_codes, decode, write_file
from aotbuild.prebuilt import read_prebuilt
from aotbuild.records import Pack
from aotbuild.shipped import shipped
from aotbuild.signature import create_key, public_key, sign
from aotbuild.target import ARCH_BY_NAME, ARCHES, Arch

PROVISION = "AotbuildProvision.cmake"
_SOURCE_LIMIT = 1 << 28

#: An artifact, and the file that it describes.
_Published = tuple[Artifact, bytes]


@dataclass(frozen=True)
class Request:
    """What a release is made of. `packs` is the output of a compile, `runtimes` are installed
    prefixes, `source` is an sdist, `keys` are files of private keys that sign, or none.
    """

    version: str
    serial: int
    expires: dt.datetime
    packs: Path
    runtimes: tuple[Path, ...] = ()
    source: Path | None = None
    mirrors: tuple[str, ...] = ()
    keys: tuple[Path, ...] = ()


def make_release(request: Request, out: Path) -> Index:
    """Writes the folder of a release, which is what a mirror holds, and returns its index.

    `out` is absent, empty, or an earlier release, which is replaced. It appears whole or not at
    all. Raises UsageError, ReleaseError, or a PackError for inputs that contradict each other.
    """
    out = out.absolute()
    _check_out(out)
    planned = _plan(request)
    private = [(str(path), path.read_bytes()) for path in request.keys]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as aside:
        folder = Path(aside, "release")
        artifacts = []
        for artifact, data in _all(request, _Agreement()):
            if (folder / artifact.file).exists():
                raise ReleaseError(f"two parts of the release are {artifact.file}; give one")
            write_file(folder / artifact.file, data)
            artifacts.append(artifact)
        index = replace(planned, artifacts=tuple(artifacts))
        written = write_index(index)
        write_file(folder / PROVISION, shipped(PROVISION).read_bytes())
        write_file(folder / INDEX_FILE, written)
        if private:
            signatures = "".join(sign(written, pem, where) for where, pem in private)
            write_file(folder / SIGNATURE_FILE, signatures.encode("ascii"))
        folder.chmod(0o755)
        _put(folder, out, Path(aside, "replaced"))
    return index


def write_key(path: Path) -> str:
    """Makes a key to sign with, and returns its public part. Only its owner can read the file.
    Raises UsageError if there is one already.
    """
    private, public = create_key()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already; a key is never overwritten") from None
    with os.fdopen(handle, "wb") as file:
        file.write(private)
        file.flush()
        os.fsync(file.fileno())
    return public


def _license() -> bytes:
    """The licence: with the installed package, or else in the source tree."""
    installed = importlib.metadata.files("aotbuild") or ()
    found = [Path(str(file.locate())) for file in installed if file.name == "LICENSE"]
    for path in (*found, Path(__file__).resolve().parents[1] / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise ReleaseError("aotbuild's LICENSE is not installed; install aotbuild again")


def _plan(request: Request) -> Index:
    """The index without artifacts. What is wrong with it is found before the work."""
    pinned = read_index(shipped(INDEX_FILE).read_bytes(), str(shipped(INDEX_FILE)))
    if request.serial <= pinned.serial:
        raise UsageError(
            f"--serial is {request.serial}; the index that this aotbuild pins has "
            f"{pinned.serial}, and serials only grow"
        )
    if request.expires <= dt.datetime.now(dt.timezone.utc):
        raise UsageError(f"--expires is {request.expires:%Y-%m-%d}, which has passed")
    keys = [public_key(path.read_bytes(), str(path)) for path in request.keys]
    if keys and pinned.keys and not set(keys) & set(pinned.keys):
        raise ReleaseError(
            "no --key is among those that the pinned index trusts, so no aotbuild would accept "
            f"the new one. Sign with one of these, too: {', '.join(pinned.keys)}"
        )
    index = Index(
        version=request.version,
        serial=request.serial,
        expires=request.expires,
        mirrors=request.mirrors,
        keys=tuple(dict.fromkeys((*pinned.keys, *keys))),
        arches=tuple(PublishedArch(arch.name, arch.vendor, arch.tier) for arch in ARCHES),
        artifacts=(),
    )
    try:
        write_index(index)
    except IndexFileError as error:
        raise UsageError(str(error)) from error
    return index


def _all(request: Request, agreed: _Agreement) -> Iterator[_Published]:
    yield from _images(request, agreed)
    for prefix in request.runtimes:
        yield _runtime(prefix, request.version, agreed)
    if request.source is not None:
        yield _source(request.source, request.version)


@dataclass
class _Agreement:
    """What all inputs must say alike, and which said it first. One that says otherwise was left
    over from another build, and does not fit the rest.
    """

    said: dict[str, tuple[object, Path]] = field(default_factory=dict)

    def note(self, what: str, value: object, where: Path) -> None:
        first, place = self.said.setdefault(what, (value, where))
        if first != value:
            raise ReleaseError(
                f"{where}: {what} is {value!r}, but {first!r} in {place}; make all parts of a "
                "release with one aotbuild"
            )

    def note_contracts(self, contracts: Mapping[str, int], where: Path) -> None:
        for operator, contract in contracts.items():
            self.note(f"contract of {operator}", contract, where)


def _published(kind: Kind, file: str, data: bytes, **facts: Any) -> _Published:
    return Artifact(kind, file, len(data), hashlib.sha256(data).hexdigest(), **facts), data


def _images(request: Request, agreed: _Agreement) -> Iterator[_Published]:
    """The archive of every pack, and the wheel of every arch."""
    version, count = request.version, 0
    if not request.packs.is_dir():
        raise UsageError(f"--packs is {request.packs}, which is no folder")
    for folder in sorted(request.packs.iterdir()):
        if folder.name == INDEX_FILE:  # as in the source tree
            continue
        arch = ARCH_BY_NAME.get(folder.name)
        if arch is None or not folder.is_dir():
            raise ReleaseError(f"{folder} is no folder of an arch; give the output of a compile")
        packs: dict[str, bytes] = {}
        for file in sorted(folder.iterdir()):
            data = file.read_bytes() if file.is_file() else b""
            pack = _checked_pack(file, data, arch, version)
            _note_pack(agreed, pack, file)
            packs[pack.family] = data
            yield _published(
                "images",
                f"aotbuild-images-{pack.family}-{arch.name}-{version}.tar.gz",
                write_archive([Member(f"{arch.name}/{pack.family}.aotpack", data)]),
                arch=arch.name,
                family=pack.family,
                pack_id=pack.pack_id,
                contracts=pack.contracts,
            )
        if packs:
            wheel = write_wheel(arch.name, version, packs, _license())
            yield _published("wheel", wheel.file, wheel.data, arch=arch.name)
        count += len(packs)
    if not count:
        raise ReleaseError(f"{request.packs} holds no pack; make some with: aotbuild compile")


def _checked_pack(file: Path, data: bytes, arch: Arch, version: str) -> Pack:
    """The pack, whose every code object was read. Raises a PackError, or ReleaseError if the pack
    is not what its path says or is another version's.
    """
    pack = decode(data, str(file))
    if (pack.arch, f"{pack.family}.aotpack") != (arch.name, file.name):
        raise ReleaseError(
            f"{file} is the pack of {pack.family} for {pack.arch}; its place is "
            f"{pack.arch}/{pack.family}.aotpack"
        )
    producer = f"aotbuild {version}"
    if pack.producer != producer:
        raise ReleaseError(
            f"{file} was made by {pack.producer!r}, this is {producer!r}; compile it again"
        )
    try:
        check_codes(pack)
    except PackError as error:
        raise type(error)(f"{file}: {error}") from error
    return pack


def _note_pack(agreed: _Agreement, pack: Pack, file: Path) -> None:
    agreed.note_contracts(pack.contracts, file)
    source = json.loads(pack.meta).get("family_source")
    agreed.note(f"source of family {pack.family}", source, file)


def _runtime(prefix: Path, version: str, agreed: _Agreement) -> _Published:
    built = read_prebuilt(prefix, version)
    manifest = built.manifest
    agreed.note_contracts(manifest.contracts, prefix)
    agreed.note("ABI of the runtime", manifest.abi, prefix)
    return _published(
        "runtime",
        f"aotbuild-runtime-{version}-linux-{manifest.cpu}.tar.gz",
        write_archive(built.members),
        cpu=manifest.cpu,
        libc=built.libc,
        toolkits=manifest.toolkits,
        abi=manifest.abi,
        contracts=manifest.contracts,
    )


def _source(file: Path, version: str) -> _Published:
    """The sdist as it is, when it unpacks and is of this version."""
    top = f"aotbuild-{version}"
    if file.name != f"{top}.tar.gz":
        raise ReleaseError(f"--source is {file}; the source of this version is {top}.tar.gz")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside, "source")
        names = extract(file, folder, limit=_SOURCE_LIMIT)
        outside = [name for name in names if not name.startswith(f"{top}/")]
        missing = [
            name
            for name in ("CMakeLists.txt", "pyproject.toml", "runtime/CMakeLists.txt")
            if f"{top}/{name}" not in names
        ]
        if outside or missing:
            raise ReleaseError(
                f"{file}: expected all below {top}/, which has not "
                f"{', '.join(missing) or 'others'}; outside of it are {outside[:3]}"
            )
        text = (folder / top / "pyproject.toml").read_text("utf-8")
    if f'\nversion = "{version}"' not in text:
        raise ReleaseError(f'{file}: its pyproject.toml does not say version = "{version}"')
    return _published("source", file.name, file.read_bytes())


def _check_out(out: Path) -> None:
    """Raises UsageError if `out` holds what is not a release, which would be lost."""
    if not out.exists() and not out.is_symlink():
        return
    if out.is_symlink() or not out.is_dir():
        raise UsageError(f"--out is {out}, which is no folder")
    there = {path.name for path in out.iterdir()}
    known: set[str] = set()
    if INDEX_FILE in there:
        index = read_index((out / INDEX_FILE).read_bytes(), str(out / INDEX_FILE))
        known = {INDEX_FILE, SIGNATURE_FILE, PROVISION, *(item.file for item in index.artifacts)}
    if there - known:
        raise UsageError(
            f"--out is {out}, which holds files that are no part of a release: "
            f"{', '.join(sorted(there - known)[:5])}; name another folder"
        )


def _put(folder: Path, out: Path, replaced: Path) -> None:
    """Renames `folder` to `out`, and what is there to `replaced`."""
    if out.exists():
        out.rename(replaced)
    try:
        folder.rename(out)
    except BaseException:
        if replaced.exists():
            replaced.rename(out)
        raise
