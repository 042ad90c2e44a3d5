"""The release index: what is not as it should be first."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotbuild.errors import IndexFileError
from aotbuild.index import Artifact, Index, PublishedArch, read_index, write_index
from aotbuild.target import ARCHES

PINNED = Path(__file__).parents[2] / "images" / "index.json"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


IMAGES = Artifact(
    "images", "aotbuild-images-attention-gfx950-0.1.0.tar.gz", 1000, sha("images"),
    arch="gfx950", family="attention", pack_id=sha("pack"), contracts={"attention.forward": 1},
)  # fmt: skip
RUNTIME = Artifact(
    "runtime", "aotbuild-runtime-0.1.0-linux-x86_64.tar.gz", 2000, sha("runtime"),
    cpu="x86_64", libc="glibc-2.34", toolkits=("cuda-13", "rocm-6.4"), abi=0,
    contracts={"attention.forward": 1},
)  # fmt: skip
SOURCE = Artifact("source", "aotbuild-0.1.0.tar.gz", 3000, sha("source"))
WHEEL = Artifact(
    "wheel", "aotbuild_images_gfx950-0.1.0-py3-none-any.whl", 4000, sha("wheel"), arch="gfx950"
)
INDEX = Index(
    version="0.1.0",
    serial=7,
    expires=dt.datetime(2027, 1, 31, tzinfo=dt.timezone.utc),
    mirrors=("https://example.org/aotbuild/0.1.0", "file:///srv/mirror"),
    keys=(sha("key"),),
    arches=(PublishedArch("gfx950", "hip", "stable"), PublishedArch("sm_90", "cuda", "stable")),
    artifacts=(IMAGES, RUNTIME, SOURCE, WHEEL),
)
GOOD: dict[str, Any] = json.loads(write_index(INDEX))
IMAGES_AT, RUNTIME_AT, WHEEL_AT = (
    next(i for i, item in enumerate(GOOD["artifacts"]) if item["kind"] == kind)
    for kind in ("images", "runtime", "wheel")
)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    table = copy.deepcopy(GOOD)
    change(table)
    return json.dumps(table).encode()


def refused(data: bytes, says: str) -> None:
    with pytest.raises(IndexFileError) as caught:
        read_index(data, "here/index.json")
    assert str(caught.value).startswith("here/index.json")
    assert says in str(caught.value)


BAD_HASHES = {
    "none": None,
    "empty": "",
    "word": "TODO",
    "short": sha("a")[:-1],
    "long": sha("a") + "0",
    "capitals": sha("a").upper(),
    "space": " " + sha("a")[1:],
    "line end": sha("a") + "\n",
    "not hexadecimal": "g" + sha("a")[1:],
    "full-width digits": "\uff11" + sha("a")[1:],
    "with a name": "sha256:" + sha("a"),
    "number": 10**63,
    "list": [sha("a")],
    "zeros": "0" * 64,
    "ones": "f" * 64,
    "deadbeef": "deadbeef" * 8,
    "digits again and again": "0123456789abcdef" * 4,
    "one": "0" * 63 + "1",
    "half": "1234567890abcdef" * 2 + "0" * 32,
    "two halves": sha("a")[:32] * 2,
    "of nothing": hashlib.sha256(b"").hexdigest(),
}


@pytest.mark.parametrize("bad", BAD_HASHES.values(), ids=BAD_HASHES)
@pytest.mark.parametrize("field", ["sha256", "pack_id", "keys"])
def test_a_hash_that_is_none(field: str, bad: object) -> None:
    if field == "keys":
        data, place = changed(lambda table: table["keys"].insert(0, bad)), "keys[0]"
    else:
        data = changed(lambda table: table["artifacts"][IMAGES_AT].update({field: bad}))
        place = f"artifacts[{IMAGES_AT}] ('{IMAGES.file}'): {field}"
    refused(data, place)


@pytest.mark.parametrize("field", ["sha256", "pack_id", "file", "size", "arch", "contracts"])
def test_a_field_that_is_missing(field: str) -> None:
    refused(changed(lambda table: table["artifacts"][IMAGES_AT].pop(field)), f"a field '{field}'")


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a/b", "/etc/passwd", "../a", "a\\b", ".hidden", "-rf", "a b", "a\n", "a\0",
        "caf\u00e9", "a" * 201, "index.json", "index.json.sig", "a?b", "a%2fb", "C:a", None, 7,
    ],
)  # fmt: skip
def test_a_file_name_that_is_none(name: object) -> None:
    refused(
        changed(lambda table: table["artifacts"][0].update(file=name)),
        "a plain ASCII file name without a folder",
    )


BAD_VALUES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format of tomorrow": (lambda t: t.update(format=2), "format is 2, this aotbuild reads 1"),
    "format as text": (lambda t: t.update(format="1"), "format is '1'"),
    "format as a truth": (lambda t: t.update(format=True), "format is True"),
    "format as a fraction": (lambda t: t.update(format=1.0), "format is 1.0"),
    "no format": (lambda t: t.pop("format"), "format is None"),
    "unknown field": (lambda t: t.update(comment="x"), "got 'comment'"),
    "unknown field of an arch": (lambda t: t["arches"][0].update(x=1), "arches[0]: expected only"),
    "field of another kind": (lambda t: t["artifacts"][WHEEL_AT].update(cpu="x"), "got 'cpu'"),
    "unknown kind": (lambda t: t["artifacts"][0].update(kind="tool"), "got 'tool'"),
    "kind as a list": (lambda t: t["artifacts"][0].update(kind=["images"]), "got ['images']"),
    "no kind": (lambda t: t["artifacts"][0].pop("kind"), "a field 'kind'"),
    "artifact as text": (lambda t: t["artifacts"].insert(0, "x"), "artifacts[0]: expected an obj"),
    "artifacts as an object": (lambda t: t.update(artifacts={}), "artifacts to be a list"),
    "mirror as text": (lambda t: t.update(mirrors="https://x"), "mirrors to be a list"),
    "mirror of another scheme": (lambda t: t["mirrors"].append("ftp://x/y"), "mirrors[2]"),
    "mirror that is a path": (lambda t: t["mirrors"].append("/srv"), "mirrors[2]"),
    "mirror with a blank": (lambda t: t["mirrors"].append("https://x/a b"), "mirrors[2]"),
    "mirror twice": (lambda t: t["mirrors"].append(t["mirrors"][0]), "mirrors: expected each"),
    "key twice": (lambda t: t["keys"].append(t["keys"][0]), "keys: expected each name once"),
    "version of two numbers": (lambda t: t.update(version="0.1"), "three numbers"),
    "version as a number": (lambda t: t.update(version=1), "three numbers"),
    "serial as text": (lambda t: t.update(serial="7"), "serial to be a number"),
    "serial as a truth": (lambda t: t.update(serial=True), "serial to be a number"),
    "serial below 0": (lambda t: t.update(serial=-1), "serial to be a number"),
    "serial beyond JSON": (lambda t: t.update(serial=1 << 53), "serial to be a number"),
    "serial with a fraction": (lambda t: t.update(serial=7.0), "serial to be a number"),
    "size of 0": (lambda t: t["artifacts"][0].update(size=0), "size to be a number"),
    "expires as a date": (lambda t: t.update(expires="2027-01-31"), "expires: expected a time"),
    "expires in a zone": (lambda t: t.update(expires="2027-01-31T00:00:00+01:00"), "a time"),
    "expires on no day": (lambda t: t.update(expires="2027-02-30T00:00:00Z"), "that exists"),
    "expires in no minute": (lambda t: t.update(expires="2027-01-31T00:60:00Z"), "that exists"),
    "expires never": (lambda t: t.update(expires=None), "expires: expected a time"),
    "arch twice": (lambda t: t["arches"].append(t["arches"][0]), "arches: expected each name"),
    "arch of an unknown vendor": (lambda t: t["arches"][0].update(vendor="x"), "cuda or hip"),
    "arch of an unknown tier": (lambda t: t["arches"][0].update(tier="beta"), "stable, exper"),
    "arch in capitals": (lambda t: t["arches"][0].update(name="GFX950"), "an arch"),
    "artifact of no known arch": (lambda t: t["arches"].pop(0), "an arch that is in arches"),
    "artifact of a list of arches": (
        lambda t: t["artifacts"][IMAGES_AT].update(arch=["gfx950"]),
        "arch: expected an arch",
    ),
    "file twice": (
        lambda t: t["artifacts"][0].update(file=t["artifacts"][1]["file"]),
        "artifacts: expected each name once",
    ),
    "subject twice": (
        lambda t: t["artifacts"].append({**t["artifacts"][IMAGES_AT], "file": "other.tar.gz"}),
        "2 times images gfx950 attention",
    ),
    "libc of another kind": (lambda t: t["artifacts"][RUNTIME_AT].update(libc="musl-1.2"), "libc"),
    "toolkit without a minor": (
        lambda t: t["artifacts"][RUNTIME_AT].update(toolkits=["rocm-7"]),
        "toolkits[0]: expected a toolkit",
    ),
    "toolkit with a minor": (
        lambda t: t["artifacts"][RUNTIME_AT].update(toolkits=["cuda-12.8"]),
        "toolkits[0]: expected a toolkit",
    ),
    "cpu with a folder": (lambda t: t["artifacts"][RUNTIME_AT].update(cpu="../x"), "a processor"),
    "abi below 0": (lambda t: t["artifacts"][RUNTIME_AT].update(abi=-1), "abi to be a number"),
    "contract 0": (
        lambda t: t["artifacts"][RUNTIME_AT]["contracts"].update({"attention.forward": 0}),
        "contracts['attention.forward'] to be a version above 0",
    ),
    "contract of no family": (
        lambda t: t["artifacts"][RUNTIME_AT]["contracts"].update({"forward": 1}),
        "an operator, as attention.forward",
    ),
    "contracts as a list": (
        lambda t: t["artifacts"][RUNTIME_AT].update(contracts=["attention.forward"]),
        "contracts to be an object",
    ),
}


@pytest.mark.parametrize(("change", "says"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_value_that_is_wrong(change: Callable[[dict[str, Any]], object], says: str) -> None:
    refused(changed(change), says)


TEXT = json.dumps(GOOD)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (TEXT[:-1].encode(), "is not JSON"),
        (TEXT.encode("utf-16"), "is not JSON"),
        (b"\xef\xbb\xbf" + TEXT.encode(), "is not JSON"),
        (TEXT.encode() + b"{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "expected an object"),
        (b"null", "expected an object"),
        (TEXT.replace('"serial": 7', '"serial": NaN').encode(), "serial to be a number"),
        (TEXT.replace('"serial": 7', '"serial": 7, "serial": 8').encode(), "2 times serial"),
        (
            TEXT.replace('"sha256": ', f'"sha256": "{sha("forged")}", "sha256": ', 1).encode(),
            "2 times sha256",
        ),
    ],
)
def test_what_is_not_an_index(data: bytes, says: str) -> None:
    refused(data, says)


@pytest.mark.parametrize(
    "bad",
    [
        replace(INDEX, expires=dt.datetime(2027, 1, 31)),  # noqa: DTZ001 - that is the fault
        replace(INDEX, expires=INDEX.expires.replace(microsecond=1)),
        replace(INDEX, artifacts=(replace(SOURCE, arch="gfx950"),)),
        replace(INDEX, artifacts=(replace(SOURCE, sha256="0" * 64),)),
        replace(INDEX, artifacts=(SOURCE, replace(SOURCE, file="other.tar.gz"))),
        replace(INDEX, mirrors=("/srv/mirror",)),
    ],
)
def test_what_would_not_be_read_is_not_written(bad: Index) -> None:
    with pytest.raises(IndexFileError, match="the index to write"):
        write_index(bad)


def test_the_message_says_where_and_what() -> None:
    with pytest.raises(IndexFileError) as caught:
        read_index(changed(lambda t: t["artifacts"][IMAGES_AT].update(sha256="0" * 64)), "i.json")
    assert str(caught.value) == (
        f"i.json: artifacts[{IMAGES_AT}] ('{IMAGES.file}'): sha256: expected a SHA-256 in "
        f"lower-case hexadecimal, not a placeholder, got '{'0' * 64}'"
    )


def test_round_trip() -> None:
    found = read_index(write_index(INDEX), "index")
    assert found.artifacts == tuple(sorted(INDEX.artifacts, key=lambda item: item.file))
    assert replace(found, artifacts=INDEX.artifacts) == INDEX


def test_equal_indexes_give_equal_bytes() -> None:
    contracts = {"b.x": 1, "a.x": 2}
    one = replace(IMAGES, contracts=contracts)
    other = replace(IMAGES, contracts=dict(reversed(contracts.items())))
    zone = dt.timezone(dt.timedelta(hours=2))
    first = write_index(replace(INDEX, artifacts=(one, RUNTIME)))
    second = replace(INDEX, artifacts=(RUNTIME, other), expires=INDEX.expires.astimezone(zone))
    assert write_index(second) == first
    assert first.isascii()
    assert first.endswith(b"}\n")


names = st.from_regex("[a-z][a-z0-9_]{0,9}", fullmatch=True)
hashes = st.binary(min_size=1, max_size=9).map(lambda data: hashlib.sha256(data).hexdigest())
contracts = st.dictionaries(st.tuples(names, names).map(".".join), st.integers(1, 99), max_size=3)
toolkits = st.one_of(
    st.integers(1, 99).map("cuda-{}".format),
    st.tuples(st.integers(1, 9), st.integers(0, 99)).map(lambda pair: "rocm-{}.{}".format(*pair)),
)
files = st.from_regex("[A-Za-z0-9][A-Za-z0-9._+-]{0,30}", fullmatch=True).filter(
    lambda name: not name.startswith("index.json")
)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    arches = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 4))
    labels = draw(st.lists(files, min_size=count, max_size=count, unique=True))
    artifacts = []
    for number, file in enumerate(labels):
        size, digest = draw(st.integers(1, 1 << 52)), draw(hashes)
        arch = draw(st.sampled_from(arches))
        family, cpu = f"family{number}", f"cpu{number}"
        artifacts.append(
            draw(
                st.sampled_from(
                    [
                        Artifact(
                            "images", file, size, digest, arch=arch, family=family,
                            pack_id=draw(hashes), contracts=draw(contracts),
                        ),
                        Artifact(
                            "runtime", file, size, digest, cpu=cpu, libc="glibc-2.34",
                            toolkits=tuple(draw(st.lists(toolkits, max_size=3, unique=True))),
                            abi=draw(st.integers(0, 9)), contracts=draw(contracts),
                        ),
                    ]
                )
            )
        )  # fmt: skip
    moment = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2999, 1, 1))  # noqa: DTZ001
    expires = draw(moment).replace(microsecond=0, tzinfo=dt.timezone.utc)
    tiers = st.sampled_from(["stable", "experimental", "preview"])
    return Index(
        version=".".join(map(str, draw(st.tuples(*[st.integers(0, 999)] * 3)))),
        serial=draw(st.integers(0, 1 << 52)),
        expires=expires,
        mirrors=tuple(draw(st.lists(names.map("https://x/{}".format), max_size=3, unique=True))),
        keys=tuple(draw(st.lists(hashes, max_size=3, unique=True))),
        arches=tuple(
            PublishedArch(name, draw(st.sampled_from(["hip", "cuda"])), draw(tiers))
            for name in arches
        ),
        artifacts=tuple(artifacts),
    )


@settings(deadline=None)
@given(indexes())
def test_every_index_reads_back(index: Index) -> None:
    written = write_index(index)
    found = read_index(written, "index")
    assert sorted(found.artifacts, key=str) == sorted(index.artifacts, key=str)
    assert replace(found, artifacts=index.artifacts) == index
    assert write_index(found) == written


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.data(), json_values)
def test_whatever_stands_in_a_place_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    table = copy.deepcopy(GOOD)
    here: Any = table
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], (dict, list)) or not here[key] or data.draw(st.booleans()):
            here[key] = value
            break
        here = here[key]
    with contextlib.suppress(IndexFileError):
        read_index(json.dumps(table).encode(), "index")


def test_the_pinned_index_knows_every_arch() -> None:
    pinned = read_index(PINNED.read_bytes(), str(PINNED))
    assert pinned.arches == tuple(PublishedArch(a.name, a.vendor, a.tier) for a in ARCHES)
    assert write_index(pinned) == PINNED.read_bytes()
