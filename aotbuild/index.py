"""The index of a release: every published artifact with its hash, and what it is for.

One JSON file, read by `aotbuild fetch`, and by CMake (cmake/AotbuildProvision.cmake). The index
that a version of aotbuild pins, `images/index.json`, is where trust begins: it names the keys
that may sign a later one. docs/release-index.md describes the file; nothing here does any I/O.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aotbuild.errors import IndexFileError

#: Names of the file and of its signature, in the folder of a release.
INDEX_FILE = "index.json"
SIGNATURE_FILE = f"{INDEX_FILE}.sig"
#: Layout of the file. A reader refuses any other.
FORMAT = 1

Kind = Literal["images", "runtime", "source", "wheel"]


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

    One index has one source, one runtime of a `cpu`, one wheel of an `arch`, and one archive of
    images of an `arch` and `family`.
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


_COMMON = ("kind", "file", "size", "sha256")
#: Fields of an artifact by kind, beyond those that all have.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "images": ("arch", "family", "pack_id", "contracts"),
    "runtime": ("cpu", "libc", "toolkits", "abi", "contracts"),
    "source": (),
    "wheel": ("arch",),
}
_NUMBERS = ("serial", "size", "abi")
_LISTS = ("mirrors", "keys", "toolkits")
_HASHES = ("sha256", "pack_id", "keys")

_NAME = "[a-z][a-z0-9_]{0,63}"
_HASH = "[0-9a-f]{64}"
#: Shape of every field that is text or a list of texts, and how a message describes it.
_SHAPES: Mapping[str, tuple[str, str]] = {
    "version": (r"[0-9]+\.[0-9]+\.[0-9]+", "three numbers, as 0.1.0"),
    "expires": (r"[0-9-]{10}T[0-9:]{8}Z", "a time, as 2027-01-31T00:00:00Z"),
    "mirrors": (r"https?://[^\s\"\\]+|file:///[^\s\"\\]*", "a URL of http, https or file"),
    "keys": (_HASH, "32 bytes in lower-case hexadecimal"),
    "name": (_NAME, "an arch, as gfx950"),
    "vendor": ("cuda|hip", "cuda or hip"),
    "tier": ("stable|experimental|preview", "stable, experimental or preview"),
    "kind": ("|".join(_FIELDS), f"one of {', '.join(_FIELDS)}"),
    "file": (
        r"(?!index\.json)[A-Za-z0-9][A-Za-z0-9._+-]{0,199}",
        "a plain ASCII file name without a folder, and not the index's own",
    ),
    "sha256": (_HASH, "a SHA-256 in lower-case hexadecimal"),
    "pack_id": (_HASH, "a SHA-256 in lower-case hexadecimal"),
    "arch": (_NAME, "an arch, as gfx950"),
    "family": (_NAME, "a family, as attention"),
    "cpu": ("[a-z0-9_]{1,32}", "a processor, as x86_64"),
    "libc": (r"glibc-[0-9]+\.[0-9]+", "a libc, as glibc-2.34"),
    "toolkits": (r"cuda-[0-9]+|rocm-[0-9]+\.[0-9]+", "a toolkit, as cuda-13 or rocm-6.4"),
}
_OPERATOR = re.compile(rf"{_NAME}\.{_NAME}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NOTHING = hashlib.sha256(b"").hexdigest()


def write_index(index: Index) -> bytes:
    """The file. Equal indexes give equal bytes: artifacts are sorted by file, operators by name."""
    index = dataclasses.replace(
        index, artifacts=tuple(sorted(index.artifacts, key=lambda item: item.file))
    )
    data = {
        "format": FORMAT,
        **{field.name: getattr(index, field.name) for field in dataclasses.fields(Index)},
        "expires": index.expires.astimezone(dt.timezone.utc).strftime(_TIME),
        "arches": [dataclasses.asdict(arch) for arch in index.arches],
        "artifacts": [
            {name: getattr(item, name) for name in (*_COMMON, *_FIELDS[item.kind])}
            | ({"contracts": dict(sorted(item.contracts.items()))} if item.contracts else {})
            for item in index.artifacts
        ],
    }
    written = (json.dumps(data, indent=1) + "\n").encode("ascii")
    if read_index(written, "the index to write") != index:
        raise IndexFileError(
            "the index to write does not read back as it was: its time is not in whole seconds "
            f"of a zone, or a field is set that its kind of artifact has not: {index}"
        )
    return written


def read_index(data: bytes, where: str) -> Index:
    """Reads and checks an index. `where` is what messages call it.

    Raises IndexFileError, which names the place, for anything that is not as it should be: a
    missing or placeholder hash, a file name with a folder, an unknown kind or field.
    """
    place = _Place(where)
    try:
        table = json.loads(data.decode("utf-8"), object_pairs_hook=place.table_of)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError included
        raise IndexFileError(f"{where} is not JSON: {error}") from error
    place.check(isinstance(table, dict), "an object", table)
    given = table.pop("format", None)
    if type(given) is not int or given != FORMAT:
        raise IndexFileError(
            f"{where}: format is {given!r}, this aotbuild reads {FORMAT}; "
            "use the aotbuild that belongs to this index"
        )
    names = [field.name for field in dataclasses.fields(Index)]
    place.names(table, names)
    index = Index(**{name: _value(place, table, name) for name in names})
    _check_unique(place, index)
    return index


def _value(place: _Place, table: Mapping[str, Any], name: str) -> Any:
    """The value of a field. Its name tells its type, whatever it is a field of."""
    value = table[name]
    if name in _NUMBERS:
        good = type(value) is int and (value > 0 if name == "size" else value >= 0)
        place.check(good and value < 1 << 53, f"{name} to be a number", value)
        return value
    if name == "contracts":
        return _contracts(place, value)
    if name == "expires":
        return _moment(place, value)
    if name in _LISTS or name in {"arches", "artifacts"}:
        place.check(isinstance(value, list), f"{name} to be a list", value)
        read = {"arches": _arch, "artifacts": _artifact}.get(name, _text)
        found = tuple(read(place.at(f"{name}[{i}]"), item, name) for i, item in enumerate(value))
        if name in _LISTS:
            place.at(name).once(map(str, found))
        return found
    return _text(place.at(name), value, name)


def _text(place: _Place, value: Any, name: str) -> str:
    shape, expected = _SHAPES[name]
    place.check(isinstance(value, str) and re.fullmatch(shape, value), expected, value)
    if name in _HASHES:
        place.check(not _is_placeholder(value), f"{expected}, not a placeholder", value)
    return str(value)


def _is_placeholder(text: str) -> bool:
    """Whether someone wrote this hash to fill it in later, or hashed nothing: it repeats itself or
    one digit, which no hash does in practice.
    """
    repeats = text in (text + text)[1:-1] or re.search(r"(.)\1{15}", text)
    return bool(repeats) or text == _NOTHING


def _arch(place: _Place, table: Any, _: str) -> PublishedArch:
    names = [field.name for field in dataclasses.fields(PublishedArch)]
    place.names(table, names)
    return PublishedArch(**{name: _value(place, table, name) for name in names})


def _artifact(place: _Place, table: Any, _: str) -> Artifact:
    place.names(table, ("kind",), more=True)
    names = (*_COMMON, *_FIELDS[_value(place, table, "kind")])
    place = _Place(f"{place.path} ({table.get('file')!r})")
    place.names(table, names)
    return Artifact(**{name: _value(place, table, name) for name in names})


def _contracts(place: _Place, value: Any) -> Mapping[str, int]:
    place.check(isinstance(value, dict), "contracts to be an object", value)
    for name, version in value.items():
        place.check(_OPERATOR.fullmatch(name), "an operator, as attention.forward", name)
        good = type(version) is int and 0 < version < 1 << 31
        place.check(good, f"contracts[{name!r}] to be a version above 0", version)
    return dict(value)


def _moment(place: _Place, value: Any) -> dt.datetime:
    text = _text(place.at("expires"), value, "expires")
    try:
        return dt.datetime.strptime(text, _TIME).replace(tzinfo=dt.timezone.utc)
    except ValueError:
        raise place.wrong("expires to be a time that exists", text) from None


def _check_unique(place: _Place, index: Index) -> None:
    """What `fetch` and CMake look for is there once, and of an arch that the index knows."""
    arches = [arch.name for arch in index.arches]
    place.at("arches").once(arches)
    place.at("artifacts").once(item.file for item in index.artifacts)
    subjects = ((item.kind, item.arch, item.family, item.cpu) for item in index.artifacts)
    place.at("artifacts").once(" ".join(filter(None, words)) for words in subjects)
    for i, item in enumerate(index.artifacts):
        known = not item.arch or item.arch in arches
        place.at(f"artifacts[{i}]").check(known, "an arch that is in arches", item.arch)


@dataclass(frozen=True)
class _Place:
    """Where in the file a value is, for messages."""

    path: str

    def at(self, step: str) -> _Place:
        return _Place(f"{self.path}: {step}")

    def wrong(self, expected: str, value: object) -> IndexFileError:
        return IndexFileError(f"{self.path}: expected {expected}, got {value!r}")

    def check(self, good: object, expected: str, value: object) -> None:
        if not good:
            raise self.wrong(expected, value)

    def once(self, words: Iterable[str]) -> None:
        for word, count in Counter(words).items():
            self.check(count == 1, "each name once", f"{count} times {word}")

    def names(self, table: Any, expected: Iterable[str], *, more: bool = False) -> None:
        """Checks that a table has these fields, and unless `more` no others."""
        self.check(isinstance(table, dict), "an object", table)
        wanted = sorted(expected)
        for name in wanted:
            self.check(name in table, f"a field {name!r}", sorted(table))
        for name in table:
            self.check(more or name in wanted, f"only the fields {', '.join(wanted)}", name)

    def table_of(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """A JSON object. Readers differ in which of two fields of one name they take."""
        self.once(name for name, _ in pairs)
        return dict(pairs)
