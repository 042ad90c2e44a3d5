"""Archives: hostile ones first."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotbuild import archive
from aotbuild.archive import Member, extract, write_archive
from aotbuild.errors import FetchError, ReleaseError, TrustError

LIMIT = 1 << 20
MEMBERS = (
    Member("lib/libx.so.0", b"\x7fELF" * 100),
    Member("lib/libx.so", link="libx.so.0"),
    Member("bin/tool", b"#!/bin/sh\n", executable=True),
    Member("share/up", link="../lib/libx.so"),
    Member("share/folder", link="../lib"),
    Member("README", b""),
)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **more: object) -> bytes:
    """One member as tar writes it, whatever it says."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def packed(*parts: bytes) -> bytes:
    return gzip.compress(b"".join(parts) + bytes(1024), mtime=0)


def negative_size() -> bytes:
    """A header whose size sends a trusting reader backwards, for ever."""
    block = bytearray(member("a"))
    block[124:136] = b"\xff" * 10 + b"\xfc\x00"
    block[148:156] = f"{sum(block[:148]) + sum(block[156:512]) + 8 * 32:06o}\0 ".encode()
    return bytes(block)


def pax(records: dict[str, str], name: str = "a") -> bytes:
    info = tarfile.TarInfo(name)
    info.pax_headers = records
    return info.tobuf(tarfile.PAX_FORMAT)


SPARSE = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0"}
HOSTILE: dict[str, tuple[bytes, str]] = {
    "absolute": (packed(member("/etc/passwd")), "'/etc/passwd'"),
    "parent": (packed(member("good"), member("../bad")), "'../bad'"),
    "parent inside": (packed(member("a/../../bad")), "'a/../../bad'"),
    "dot": (packed(member("./a")), "'./a'"),
    "nothing between slashes": (packed(member("a//b")), "'a//b'"),
    "no name": (packed(member("")), "member ''"),
    "folder of no name": (packed(member("/", tarfile.DIRTYPE)), "member ''"),
    "backslash": (packed(member("a\\..\\b")), "without"),
    "newline": (packed(member("a\nb")), "'a\\nb': a name is"),
    "escape": (packed(member("\x1b[2J")), "member"),
    "not ASCII": (packed(member("caf\u00e9")), "ASCII"),
    "not UTF-8": (packed(member("caf\udce9")), "ASCII"),
    "long name": (packed(member("a/" * 200 + "b")), "255"),
    "NUL in a pax name": (packed(pax({"path": "a\0b"})), "ASCII"),
    "twice": (packed(member("a"), member("a")), "'a' is there twice"),
    "file and folder": (packed(member("a"), member("a", tarfile.DIRTYPE)), "twice"),
    "file as parent": (packed(member("a/b"), member("a")), "'a' is no folder"),
    "hard link": (packed(member("a"), member("b", tarfile.LNKTYPE, "a")), "'b' is of type"),
    "fifo": (packed(member("a", tarfile.FIFOTYPE)), "'a' is of type"),
    "character device": (packed(member("a", tarfile.CHRTYPE)), "'a' is of type"),
    "block device": (packed(member("a", tarfile.BLKTYPE)), "'a' is of type"),
    "contiguous": (packed(member("a", tarfile.CONTTYPE)), "'a' is of type"),
    "unknown type": (packed(member("a", b"Q")), "'a' is of type"),
    "sparse": (packed(member("a", tarfile.GNUTYPE_SPARSE)), "'a' is of type"),
    "sparse by pax": (packed(pax(SPARSE)), "'a' is of type"),
    "link out": (packed(member("a", tarfile.SYMTYPE, "../b")), "'a' links to '../b'"),
    "link to root": (packed(member("a", tarfile.SYMTYPE, "/")), "links to '/'"),
    "absolute link": (packed(member("a", tarfile.SYMTYPE, "/etc")), "links to '/etc'"),
    "link to nothing": (packed(member("a", tarfile.SYMTYPE, "b")), "links to 'b'"),
    "link without target": (packed(member("a", tarfile.SYMTYPE)), "'a' is of type"),
    "link to the top": (packed(member("b/a", tarfile.SYMTYPE, "..")), "links to '..'"),
    "link as parent": (
        packed(member("d/x"), member("l", tarfile.SYMTYPE, "d"), member("l/y")),
        "'l' is no folder",
    ),
    "link as a later parent": (
        packed(member("l/y"), member("d/x"), member("l", tarfile.SYMTYPE, "d")),
        "'l' is no folder",
    ),
    "link through a link": (  # by its text inside; /x/.. followed from the link is outside
        packed(
            member("x/f"),
            member("p/f"),
            member("p/q/s", tarfile.SYMTYPE, "../../x"),
            member("t", tarfile.SYMTYPE, "p/q/s/../../f"),
        ),
        "'t' links to",
    ),
    "empty file": (b"", "ends in the middle"),
    "no gzip": (b"PK\x03\x04 and so on", "gzip"),
    "no tar": (gzip.compress(b"hello" * 300), "tar"),
    "empty tar": (packed(), "empty"),
    "nothing": (gzip.compress(b""), "empty"),
    "data behind the gzip": (packed(member("a")) + b"\0", "behind its end"),
    "second gzip": (packed(member("a")) * 2, "behind its end"),
    "data behind the tar": (packed(member("a"), bytes(1024), member("b")), "behind its last"),
    "damaged header": (packed(member("a"), b"x" * 512, member("b")), "damaged"),
    "truncated content": (gzip.compress(member("a", size=5000) + bytes(600)), "'a' lies outside"),
    "huge size": (packed(member("a", size=1 << 62)), "lies outside"),
    "huge pax header": (packed(member("a", tarfile.XHDTYPE, size=1 << 62)), "damaged"),
    "huge long name": (packed(member("a", tarfile.GNUTYPE_LONGNAME, size=1 << 40)), "damaged"),
    "negative size": (packed(negative_size()), "lies outside"),
    "negative pax size": (packed(pax({"size": "-1024"})), "lies outside"),
    "nested long names": (packed(member("a", tarfile.XHDTYPE) * 1500), "damaged"),
    "many members": (packed(*(member(str(i)) for i in range(10_001))), "10000 members"),
    "inflates too far": (gzip.compress(bytes(LIMIT + 1)), f"larger than {LIMIT} bytes"),
}


def unpack(data: bytes, tmp_path: Path, limit: int = LIMIT) -> Path:
    source = tmp_path / "in" / "x.tar.gz"
    source.parent.mkdir(exist_ok=True)
    source.write_bytes(data)
    extract(source, tmp_path / "out" / "x", limit=limit)
    return tmp_path / "out" / "x"


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(("data", "says"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_leaves_nothing(data: bytes, says: str, tmp_path: Path) -> None:
    limit = 8 * LIMIT if says.startswith("10000") else LIMIT
    with pytest.raises(TrustError) as caught:
        unpack(data, tmp_path, limit)
    assert "x.tar.gz: " in str(caught.value)
    assert says in str(caught.value)
    assert left(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 8, 20, 100])
def test_a_truncated_archive_leaves_nothing(cut: int, tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="ends in the middle"):
        unpack(write_archive(MEMBERS)[:-cut], tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize("there", ["file", "link", "folder"])
def test_what_is_there_stays(there: str, tmp_path: Path) -> None:
    place = tmp_path / "out" / "x"
    place.parent.mkdir()
    if there == "file":
        place.write_text("mine")
    elif there == "link":
        place.symlink_to(tmp_path)
    else:
        place.mkdir()
        (place / "mine").touch()
    with pytest.raises(FetchError, match="is there already"):
        unpack(write_archive(MEMBERS), tmp_path)
    assert len(left(tmp_path)) == (2 if there == "folder" else 1)


def test_a_failing_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        unpack(write_archive(MEMBERS), tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([], "empty"),
        ([Member("../a")], r"'\.\./a'"),
        ([Member("a"), Member("a", b"x")], "twice"),
        ([Member("a", link="/etc")], "links to '/etc'"),
        ([Member("a" * 120)], "name is too long"),
    ],
)
def test_what_would_not_unpack_is_not_written(bad: list[Member], says: str) -> None:
    with pytest.raises(ReleaseError, match=says):
        write_archive(bad)


def test_round_trip(tmp_path: Path) -> None:
    place = unpack(write_archive(MEMBERS), tmp_path)
    for item in MEMBERS:
        path = place / item.name
        assert path.is_symlink() == bool(item.link)
        if item.link:
            assert str(path.readlink()) == item.link
            assert path.resolve(strict=True).is_relative_to(place)
        else:
            assert path.read_bytes() == item.data
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if item.executable else 0o644)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_names_are_told(tmp_path: Path) -> None:
    source = tmp_path / "x.tar.gz"
    source.write_bytes(packed(member("d/e", tarfile.DIRTYPE), member("d/f"), member("a")))
    assert extract(source, tmp_path / "x", limit=LIMIT) == ("d/f", "a")
    assert (tmp_path / "x" / "d" / "e").is_dir()


def test_modes_are_made_plain(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        place = unpack(
            packed(
                member("d", tarfile.DIRTYPE, mode=0o7777),
                member("d/setuid", mode=0o6755, uid=12345),
                member("d/locked", mode=0),
            ),
            tmp_path,
        )
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*")}
    assert modes == {"d": 0o755, "setuid": 0o755, "locked": 0o644}


def test_archives_of_other_writers_unpack(tmp_path: Path) -> None:
    """As a source archive by git or a Python build back end is: pax headers, long names."""
    stream = io.BytesIO()
    long = "top/" + "n" * 120
    with tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.pax_headers = {"comment": "a commit"}
        for name in ("top/a", long):
            info = tarfile.TarInfo(name)
            info.mtime, info.size = 1.5, 700
            tar.addfile(info, io.BytesIO(b"x" * 700))
    place = unpack(stream.getvalue(), tmp_path)
    assert (place / long).read_bytes() == b"x" * 700


def test_equal_members_give_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_archive(MEMBERS)
    monkeypatch.setattr("time.time", lambda: 12345.0)
    assert write_archive(reversed(MEMBERS)) == first
    assert first[:9] == b"\x1f\x8b\x08\0\0\0\0\0\x02"  # no name, no time
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        found = [(i.mtime, i.uid, i.gid, i.uname, i.gname, i.mode) for i in tar]
    assert set(found) == {(0, 0, 0, "", "", mode) for mode in (0o644, 0o755)}


names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/\\"))
good_names = names.filter(lambda name: 0 < len(name) < 90 and name not in (".", ".."))
contents = st.dictionaries(
    good_names, st.tuples(st.binary(max_size=2000), st.booleans()), min_size=1
)


@settings(deadline=None)
@given(contents)
def test_whatever_is_written_unpacks(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, bool]]
) -> None:
    tmp_path = tmp_path_factory.mktemp("archive")
    place = unpack(write_archive(Member(n, d, x) for n, (d, x) in files.items()), tmp_path)
    found = {path.name: (path.read_bytes(), os.access(path, os.X_OK)) for path in place.iterdir()}
    # The superuser may execute a file if anyone may, so access tells for every user.
    assert found == files


@settings(deadline=None)
@given(st.integers(0, 10 * 512 - 1), st.binary(min_size=1, max_size=12))
def test_a_damaged_tar_unpacks_inside_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory, at: int, new: bytes
) -> None:
    plain = bytearray(gzip.decompress(write_archive(MEMBERS)))
    plain[at : at + len(new)] = new
    start = at // 512 * 512
    header = plain[start : start + 512]
    total = sum(header[:148]) + sum(header[156:]) + 8 * 32
    plain[start + 148 : start + 156] = f"{total:06o}\0 ".encode()  # what a forger would mend
    tmp_path = tmp_path_factory.mktemp("damaged")
    try:
        place = unpack(gzip.compress(bytes(plain)), tmp_path)
    except TrustError:
        assert left(tmp_path) == []
        return
    for path in place.rglob("*"):
        assert path.is_symlink() or path.is_file() or path.is_dir()
        assert path.resolve().is_relative_to(place.resolve())
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


def test_the_reader_of_headers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 2)
    unpack(packed(member("a"), member("b")), tmp_path)
    with pytest.raises(TrustError, match="more than 2 members"):
        extract(_three(tmp_path), tmp_path / "three", limit=LIMIT)


def _three(tmp_path: Path) -> Path:
    path = tmp_path / "three.tar.gz"
    path.write_bytes(packed(*map(member, "abc")))
    return path
