"""The index of a release: every published artifact with its hash, and what it is for.

One JSON file, read by `aotbuild fetch`, and by CMake (cmake/AotbuildProvision.cmake). The index
that a version of aotbuild pins, `images/index.json`, is where trust begins: it names the keys
that may sign a later one. docs/release-index.md describes the file; nothing here does any I/O.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aotbuild.errors import IndexFileError

#: Layout of the file. A reader refuses any other.
FORMAT = 1

Kind = Literal["images", "runtime", "source", "wheel"]
KINDS: tuple[Kind, ...] = ("images", "runtime", "source", "wheel")

_HEX = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_TOOLKIT = re.compile(r"cuda-[0-9]+|rocm-[0-9]+\.[0-9]+")
_CPU = re.compile(r"[a-z0-9_]{1,32}")
_LIBC = re.compile(r"glibc-[0-9]+\.[0-9]+")
_MIRROR = re.compile(r"(https?://[^\s\"\\]+|file:///[^\s\"\\]*)")
#: Hashes that people write to fill a field in later.
_PLACEHOLDERS = frozenset(digit * 64 for digit in "0123456789abcdef")


@dataclass(frozen=True)
class Artifact:
    """A published file. `file` is its name, without a folder, under every mirror; `size` is in
    bytes. The rest depends on `kind` and is empty where it does not apply:

    images: an archive of one pack, `<arch>/<family>.aotpack`; `pack_id` is the pack's own and
        `contracts` the contract version of each operator in it.
    runtime: an archive of an install prefix. `cpu` and `libc` ("glibc-2.34", the oldest that it
        runs with) of the host, `toolkits` whose headers it was compared with ("cuda-13",
        "rocm-6.4"), `abi` of the C interface, `contracts` that its front ends call.
    source: what a runtime is built from where none of those fits.
    wheel: a Python package of images, for pip; `arch`.
    """

    kind: Kind
    file: str
    size: int
    sha256: str
    arch: str = ""
    family: str = ""
    pack_id: str = ""
    cpu: str = ""
    libc: str = ""
    toolkits: tuple[str, ...] = ()
    abi: int = 0
    contracts: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class PublishedArch:
    """An arch that this version of aotbuild knows, with or without packs in the index."""

    name: str
    vendor: str
    tier: str


@dataclass(frozen=True)
class Index:
    """`version` is aotbuild's. `serial` grows with every index that is published and never goes
    back. `expires` ends the validity of a downloaded one (a pinned one is valid for ever).
    `mirrors` are URLs of folders that hold the artifacts. `keys` are the Ed25519 public keys, 32
    bytes in hexadecimal, that may sign the indexes that follow this one.
    """

    version: str
    serial: int
    expires: dt.datetime
    mirrors: tuple[str, ...]
    keys: tuple[str, ...]
    arches: tuple[PublishedArch, ...]
    artifacts: tuple[Artifact, ...]


#: Fields of an artifact by kind, beyond those that all have.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "images": ("arch", "family", "pack_id", "contracts"),
    "runtime": ("cpu", "libc", "toolkits", "abi", "contracts"),
    "source": (),
    "wheel": ("arch",),
}
_COMMON = ("kind", "file", "size", "sha256")


def write_index(index: Index) -> bytes:
    """The file. Equal indexes give equal bytes: artifacts sorted by file, keys by name."""
    data = {
        "format": FORMAT,
        "version": index.version,
        "serial": index.serial,
        "expires": index.expires.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "mirrors": list(index.mirrors),
        "keys": list(index.keys),
        "arches": [dataclasses.asdict(arch) for arch in index.arches],
        "artifacts": [
            {name: _plain(getattr(item, name)) for name in (*_COMMON, *_FIELDS[item.kind])}
            for item in sorted(index.artifacts, key=lambda item: item.file)
        ],
    }
    written = (json.dumps(data, indent=1, ensure_ascii=True) + "\n").encode("ascii")
    if read_index(written, "the new index") != dataclasses.replace(
        index, artifacts=tuple(sorted(index.artifacts, key=lambda item: item.file))
    ):
        raise IndexFileError("the new index does not read back as it was")
    return written


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    return list(value) if isinstance(value, tuple) else value


def read_index(data: bytes, where: str) -> Index:
    """Reads and checks an index. `where` is what messages call it.

    Raises IndexFileError, which names the place, for anything that is not as it should be: a
    missing or placeholder hash, a file name with a folder, an unknown kind or field.
    """
    try:
        table = json.loads(data)
    except ValueError as error:  # UnicodeDecodeError included
        raise IndexFileError(f"{where} is not JSON: {error}") from error
    place = _Place(where)
    place.check(isinstance(table, dict), table, "an object")
    if table.get("format") != FORMAT:
        raise IndexFileError(
            f"{where}: format is {table.get('format')!r}, this aotbuild reads {FORMAT}; "
            "use the aotbuild that belongs to this index"
        )
    fields = {f.name for f in dataclasses.fields(Index)}
    place.names(table, fields | {"format"})
    return Index(
        version=place.text(table, "version", _VERSION, "three numbers, as 0.1.0"),
        serial=place.count(table, "serial"),
        expires=_moment(place, table),
        mirrors=place.texts(table, "mirrors", _MIRROR, "a URL of http, https or file"),
        keys=place.texts(table, "keys", _HEX, "32 bytes in lower-case hexadecimal"),
        arches=tuple(
            _arch(place.at(f"arches[{i}]"), item)
            for i, item in enumerate(place.items(table, "arches"))
        ),
        artifacts=_artifacts(place, table),
    )


def _artifacts(place: _Place, table: Mapping[str, Any]) -> tuple[Artifact, ...]:
    found = tuple(
        _artifact(place.at(f"artifacts[{i}]"), item)
        for i, item in enumerate(place.items(table, "artifacts"))
    )
    files = [item.file for item in found]
    for i, file in enumerate(files):
        place.at(f"artifacts[{i}]").check(file not in files[:i], file, "a name of its own")
    return found


def _artifact(place: _Place, table: Any) -> Artifact:
    place.check(isinstance(table, dict), table, "an object")
    kind = table.get("kind")
    place.check(kind in KINDS, kind, f"kind to be one of {', '.join(KINDS)}")
    place.names(table, {*_COMMON, *_FIELDS[kind]})
    place = place.at(f" ({table.get('file')!r})")
    readers: Mapping[str, Any] = {
        "size": lambda: place.count(table, "size"),
        "file": lambda: place.text(table, "file", _FILE, "a plain ASCII file name"),
        "sha256": lambda: _hash(place, table, "sha256"),
        "arch": lambda: place.text(table, "arch", _NAME, "an arch"),
        "family": lambda: place.text(table, "family", _NAME, "a family"),
        "pack_id": lambda: _hash(place, table, "pack_id"),
        "cpu": lambda: place.text(table, "cpu", _CPU, "a processor, as x86_64"),
        "libc": lambda: place.text(table, "libc", _LIBC, "a libc, as glibc-2.34"),
        "toolkits": lambda: place.texts(table, "toolkits", _TOOLKIT, "as cuda-13 or rocm-6.4"),
        "abi": lambda: place.count(table, "abi"),
        "contracts": lambda: _contracts(place, table),
    }
    names = ("file", "size", "sha256", *_FIELDS[kind])
    return Artifact(kind=kind, **{name: readers[name]() for name in names})


def _arch(place: _Place, table: Any) -> PublishedArch:
    place.check(isinstance(table, dict), table, "an object")
    place.names(table, {"name", "vendor", "tier"})
    return PublishedArch(
        place.text(table, "name", _NAME, "an arch"),
        place.text(table, "vendor", re.compile("cuda|hip"), "cuda or hip"),
        place.text(table, "tier", re.compile("stable|experimental|preview"), "a tier"),
    )


def _contracts(place: _Place, table: Mapping[str, Any]) -> Mapping[str, int]:
    found = table["contracts"]
    place.check(isinstance(found, dict), found, "contracts to be an object")
    for name, version in found.items():
        good = type(version) is int and version > 0
        place.check(good, version, f"contracts[{name!r}] to be a version above 0")
    return dict(found)


def _hash(place: _Place, table: Mapping[str, Any], name: str) -> str:
    text = place.text(table, name, _HEX, "a SHA-256 in lower-case hexadecimal")
    place.check(text not in _PLACEHOLDERS, text, f"{name} to be a hash, not a placeholder")
    return text


def _moment(place: _Place, table: Mapping[str, Any]) -> dt.datetime:
    shape = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
    text = place.text(table, "expires", shape, "a time such as 2027-01-31T00:00:00Z")
    try:
        return dt.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        place.check(False, text, "expires to be a time that exists")
        raise AssertionError from None  # check has raised


@dataclass(frozen=True)
class _Place:
    """Where in the file a value is, for messages."""

    path: str

    def at(self, step: str) -> _Place:
        return _Place(f"{self.path}{step if step.startswith(' ') else f': {step}'}")

    def check(self, good: bool, value: object, expected: str) -> None:
        if not good:
            raise IndexFileError(f"{self.path}: expected {expected}, got {value!r}")

    def names(self, table: Mapping[str, Any], expected: Iterable[str]) -> None:
        wanted = set(expected)
        for name in table:
            self.check(name in wanted, name, f"only {', '.join(sorted(wanted))}")
        for name in sorted(wanted):
            self.check(name in table, sorted(table), f"a field {name!r}")

    def text(
        self, table: Mapping[str, Any], name: str, shape: re.Pattern[str], expected: str
    ) -> str:
        value = table[name]
        good = isinstance(value, str) and shape.fullmatch(value) is not None
        self.check(good, value, f"{name} to be {expected}")
        return str(value)

    def count(self, table: Mapping[str, Any], name: str) -> int:
        value = table[name]
        self.check(type(value) is int and 0 <= value < 1 << 53, value, f"{name} to be a number")
        return int(value)

    def items(self, table: Mapping[str, Any], name: str) -> list[Any]:
        value = table[name]
        self.check(isinstance(value, list), value, f"{name} to be a list")
        return list(value)

    def texts(
        self, table: Mapping[str, Any], name: str, shape: re.Pattern[str], expected: str
    ) -> tuple[str, ...]:
        found = self.items(table, name)
        for i, value in enumerate(found):
            good = isinstance(value, str) and shape.fullmatch(value) is not None
            self.check(good, value, f"{name}[{i}] to be {expected}")
        return tuple(found)
