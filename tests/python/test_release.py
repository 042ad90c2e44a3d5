"""A release: what contradicts itself first, then what mirrors get."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import make_packs
import pytest
from make_packs import good_pack

import aotbuild
from aotbuild import cli, release
from aotbuild.archive import Member, extract, write_archive
from aotbuild.errors import AotbuildError, PackError, ReleaseError, TrustError, UsageError
from aotbuild.index import Artifact, read_index, write_index
from aotbuild.pack import encode, open_pack
from aotbuild.records import Pack
from aotbuild.release import Request, make_release, write_key
from aotbuild.signature import public_key, verify
from aotbuild.target import ARCHES

VERSION = aotbuild.__version__
SOURCE_FILES = {
    "CMakeLists.txt": b"",
    "runtime/CMakeLists.txt": b"",
    "pyproject.toml": f'[project]\nversion = "{VERSION}"\n'.encode(),
}


def pack_of(arch: str, **changes: Any) -> Pack:
    pack = good_pack(0x54C if arch == "gfx942" else 0x54F)
    return replace(pack, **{"arch": arch, "producer": f"aotbuild {VERSION}", **changes})


def put(packs: Path, pack: Pack, place: str = "") -> Path:
    path = packs / (place or f"{pack.arch}/{pack.family}.aotpack")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pack))
    return path


def write_source(folder: Path, name: str = "", **changes: bytes | None) -> Path:
    files = {**SOURCE_FILES, **{key.replace("__", "/"): data for key, data in changes.items()}}
    top = f"aotbuild-{VERSION}"
    members = [Member(f"{top}/{n}", data) for n, data in files.items() if data is not None]
    path = folder / (name or f"{top}.tar.gz")
    path.write_bytes(write_archive(members))
    return path


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """Packs of two arches."""
    for arch in ("gfx942", "gfx950"):
        put(tmp_path / "packs", pack_of(arch))
    expires = dt.datetime(2999, 1, 31, tzinfo=dt.timezone.utc)
    return Request(VERSION, 1, expires, tmp_path / "packs")


def refused(request: Request, out: Path, kind: type[AotbuildError], says: str) -> None:
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(kind) as caught:
        make_release(request, out)
    assert says in str(caught.value)
    assert sorted(out.parent.rglob("*")) == before  # nothing half-written, nothing left aside


BAD_PACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "which is no folder"),
    "nothing": (lambda p: [shutil.rmtree(folder) for folder in p.iterdir()], "holds no pack"),
    "folder of no arch": (lambda p: (p / "gfx9999").mkdir(), "gfx9999 is no folder of an arch"),
    "arch in capitals": (lambda p: (p / "gfx942").rename(p / "GFX942"), "GFX942 is no folder"),
    "file beside arches": (lambda p: (p / "notes.txt").touch(), "notes.txt is no folder"),
    "file instead of an arch": (lambda p: (p / "sm_90").touch(), "sm_90 is no folder"),
    "file that is no pack": (lambda p: (p / "gfx942/notes").touch(), "gfx942/notes"),
    "folder beside packs": (lambda p: (p / "gfx942/more").mkdir(), "gfx942/more"),
    "another arch": (
        lambda p: put(p, pack_of("gfx942"), "gfx90a/vector.aotpack"),
        "gfx90a/vector.aotpack is the pack of vector for gfx942",
    ),
    "another family": (
        lambda p: put(p, pack_of("gfx942"), "gfx942/tensor.aotpack"),
        "gfx942/tensor.aotpack is the pack of vector for gfx942",
    ),
    "another ending": (
        lambda p: put(p, pack_of("gfx942"), "gfx942/vector.pack"),
        "vector.pack is the pack of",
    ),
    "made by another version": (
        lambda p: put(p, pack_of("gfx950", producer="aotbuild 0.0.9")),
        "gfx950/vector.aotpack was made by 'aotbuild 0.0.9', this is",
    ),
    "of other kernels": (
        lambda p: put(p, pack_of("gfx950", meta='{"family_source":"abc"}')),
        "source of family vector is 'abc', but None in",
    ),
    "of another contract": (
        lambda p: put(
            p,
            pack_of(
                "gfx950",
                operators=tuple(replace(op, contract=9) for op in good_pack().operators),
            ),
        ),
        "contract of vector.scale is 9, but 1 in",
    ),
    "with code for another arch": (
        lambda p: put(p, replace(good_pack(0x54C), arch="gfx950", producer=f"aotbuild {VERSION}")),
        "gfx950/vector.aotpack: code object is for arch number 0x4c",
    ),
}


@pytest.mark.parametrize(("change", "says"), BAD_PACKS.values(), ids=BAD_PACKS)
def test_packs_that_cannot_be_published(
    request_: Request, tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    change(request_.packs)
    out = tmp_path / "made" / "out"
    out.parent.mkdir()
    refused(request_, out, AotbuildError, says)


def damaged_packs() -> dict[str, bytes]:
    """The bad packs of tests/data, as this version would have made them."""

    def made_here(flags: int = 0x54C) -> Pack:
        return replace(good_pack(flags), producer=f"aotbuild {VERSION}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_packs, "good_pack", made_here)
        return {name: data for name, data in make_packs.vectors() if name.startswith("bad_")}


@pytest.mark.parametrize("data", damaged_packs().values(), ids=damaged_packs())
def test_every_damaged_pack_is_named(request_: Request, tmp_path: Path, data: bytes) -> None:
    place = request_.packs / "gfx942" / "vector.aotpack"
    place.write_bytes(data)
    out = tmp_path / "made" / "out"
    out.parent.mkdir()
    refused(request_, out, PackError, str(place))


def test_serials_only_grow(request_: Request, tmp_path: Path) -> None:
    refused(replace(request_, serial=0), tmp_path / "out", UsageError, "--serial is 0")


def test_an_index_that_has_expired(request_: Request, tmp_path: Path) -> None:
    past = dt.datetime(2020, 1, 31, tzinfo=dt.timezone.utc)
    refused(
        replace(request_, expires=past), tmp_path / "out", UsageError, "--expires is 2020-01-31"
    )


@pytest.mark.parametrize("mirror", ["/srv/x", "example.org", "ftp://x", "https://x/a b", ""])
def test_a_mirror_that_is_none(request_: Request, tmp_path: Path, mirror: str) -> None:
    refused(replace(request_, mirrors=(mirror,)), tmp_path / "out", UsageError, "mirrors[0]")


def test_a_key_that_is_none(request_: Request, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(FileNotFoundError, match=r"key\.pem"):
        make_release(replace(request_, keys=(key,)), tmp_path / "out")
    key.write_text("secret")
    refused(replace(request_, keys=(key,)), tmp_path / "out", ReleaseError, str(key))


def pin(monkeypatch: pytest.MonkeyPatch, folder: Path, **changes: Any) -> None:
    """Puts another index in the place of the one that this version pins."""
    real = release.shipped
    pinned = read_index(real("index.json").read_bytes(), "pinned")
    (folder / "pinned.json").write_bytes(write_index(replace(pinned, **changes)))
    monkeypatch.setattr(
        release,
        "shipped",
        lambda name: folder / "pinned.json" if name == "index.json" else real(name),
    )


def test_a_key_that_nobody_trusts(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, other = write_key(tmp_path / "a.pem"), write_key(tmp_path / "b.pem")
    pin(monkeypatch, tmp_path, keys=(trusted,), serial=5)
    stranger = replace(request_, serial=6, keys=(tmp_path / "b.pem",))
    refused(replace(stranger, serial=5), tmp_path / "out", UsageError, "pins has 5")
    refused(stranger, tmp_path / "out", ReleaseError, trusted)

    # A key comes by being named beside one that is trusted.
    both = replace(stranger, keys=(tmp_path / "a.pem", tmp_path / "b.pem"))
    assert make_release(both, tmp_path / "out").keys == (trusted, other)
    data = (tmp_path / "out" / "index.json").read_bytes()
    signature = (tmp_path / "out" / "index.json.sig").read_text("ascii")
    assert verify(data, signature, [trusted], "index") == trusted
    assert verify(data, signature, [other], "index") == other


BAD_SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "another name": (lambda p: write_source(p, "source.tar.gz"), "is aotbuild-"),
    "no build": (lambda p: write_source(p, **{"CMakeLists.txt": None}), "has not CMakeLists.txt"),
    "another version": (
        lambda p: write_source(p, **{"pyproject.toml": b'[project]\nversion = "9.9.9"\n'}),
        "does not say version",
    ),
}


@pytest.mark.parametrize(("make", "says"), BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_a_source_that_is_none(
    request_: Request, tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    source = make(tmp_path)
    refused(replace(request_, source=source), tmp_path / "out", ReleaseError, says)
    source.rename(tmp_path / f"aotbuild-{VERSION}.tar.gz")
    if says != "is aotbuild-":
        (tmp_path / f"aotbuild-{VERSION}.tar.gz").write_bytes(b"PK")
        damaged = replace(request_, source=tmp_path / f"aotbuild-{VERSION}.tar.gz")
        refused(damaged, tmp_path / "out", TrustError, "gzip")


def test_a_source_with_files_outside_of_its_folder(request_: Request, tmp_path: Path) -> None:
    path = write_source(tmp_path)
    members = [Member(f"aotbuild-{VERSION}/{n}", data) for n, data in SOURCE_FILES.items()]
    path.write_bytes(write_archive([*members, Member("bin/sh", b"")]))
    refused(replace(request_, source=path), tmp_path / "out", ReleaseError, "outside of it are")


def test_runtimes_that_contradict_packs_or_each_other(
    request_: Request, tmp_path: Path, built_prefix: Path
) -> None:
    out = tmp_path / "made" / "out"
    out.parent.mkdir()
    twice = replace(request_, runtimes=(built_prefix, built_prefix))
    refused(twice, out, ReleaseError, "two parts of the release are")
    other = Path(shutil.copytree(built_prefix, tmp_path / "prefix", symlinks=True))
    manifest = other / "share/aotbuild/runtime.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(said | {"contracts": {"vector.scale": 2}}))
    old = replace(request_, runtimes=(other,))
    refused(old, out, ReleaseError, "contract of vector.scale is 2, but 1 in")


@pytest.mark.parametrize("there", ["file", "link", "file in it", "damaged index", "more files"])
def test_what_is_no_release_is_not_replaced(request_: Request, tmp_path: Path, there: str) -> None:
    out = tmp_path / "out"
    if there == "more files":
        make_release(request_, out)
        (out / "thesis.txt").touch()
    elif there == "file":
        out.touch()
    elif there == "link":
        (tmp_path / "else").mkdir()
        out.symlink_to(tmp_path / "else")
    else:
        out.mkdir()
        (out / ("index.json" if "index" in there else "thesis.txt")).write_text("{}")
    refused(request_, out, AotbuildError, str(out))


def test_an_earlier_release_is_replaced_whole(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    make_release(request_, out)
    before = contents(out)
    shutil.rmtree(request_.packs / "gfx950")
    with monkeypatch.context() as patch:  # the disk fails between the two renames
        real = Path.rename
        patch.setattr(Path, "rename", lambda a, b: real(a, b) if a.name != "release" else fail())
        with pytest.raises(OSError, match="disk"):
            make_release(request_, out)
    assert contents(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "packs"]
    make_release(request_, out)
    assert not [name for name in contents(out) if "gfx950" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "packs"]


def fail() -> None:
    raise OSError("disk")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_equal_inputs_give_equal_bytes(
    request_: Request, tmp_path: Path, built_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From other folders, at other times, by other users."""
    key = tmp_path / "key.pem"
    write_key(key)
    first = replace(request_, keys=(key,), runtimes=(built_prefix,), source=write_source(tmp_path))
    make_release(first, tmp_path / "out")
    folder = tmp_path / "another folder"
    umask = os.umask(0o077)
    try:
        packs = shutil.copytree(request_.packs, folder / "p", copy_function=shutil.copyfile)
        prefix = shutil.copytree(built_prefix, folder / "x", symlinks=True)
        for path in folder.rglob("*"):
            os.utime(path, (1, 1), follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o700)
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        monkeypatch.chdir(folder)
        again = replace(first, packs=packs.relative_to(folder), runtimes=(prefix,))
        make_release(again, Path("made/out"))
    finally:
        os.umask(umask)
    assert contents(folder / "made" / "out") == contents(tmp_path / "out")
    for path in (folder / "made" / "out").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE((folder / "made" / "out").stat().st_mode) == 0o755


def test_what_mirrors_get(request_: Request, tmp_path: Path, built_prefix: Path) -> None:
    source = write_source(tmp_path)
    mirrors = ("https://example.org/a", "file:///srv/b")
    whole = replace(request_, runtimes=(built_prefix,), source=source, mirrors=mirrors)
    index = make_release(whole, tmp_path / "out")
    files = contents(tmp_path / "out")
    assert replace(read_index(files.pop("index.json"), "index"), artifacts=()) == replace(
        index, artifacts=()
    )
    assert b"function(aotbuild_provision" in files.pop("AotbuildProvision.cmake")
    assert {item.file: item.sha256 for item in index.artifacts} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
    assert all(item.size == len(files[item.file]) for item in index.artifacts)
    assert (index.mirrors, index.serial, index.keys) == (mirrors, 1, ())
    assert [arch.name for arch in index.arches] == [arch.name for arch in ARCHES]

    by_kind: dict[str, list[Artifact]] = {}
    for item in index.artifacts:
        by_kind.setdefault(item.kind, []).append(item)
    assert {kind: len(items) for kind, items in by_kind.items()} == {
        "images": 2, "wheel": 2, "runtime": 1, "source": 1
    }  # fmt: skip
    assert files[source.name] == source.read_bytes()
    for item in by_kind["images"]:
        assert item.file == f"aotbuild-images-vector-{item.arch}-{VERSION}.tar.gz"
        names = extract(tmp_path / "out" / item.file, tmp_path / item.arch, limit=1 << 24)
        assert names == (f"{item.arch}/vector.aotpack",)
        pack = tmp_path / item.arch / names[0]
        assert pack.read_bytes() == (request_.packs / names[0]).read_bytes()
        assert item.pack_id == open_pack(pack).pack_id
        assert item.contracts == {"vector.scale": 1, "vector.sum": 3}
    (runtime,) = by_kind["runtime"]
    assert runtime.file == f"aotbuild-runtime-{VERSION}-linux-{runtime.cpu}.tar.gz"
    assert (runtime.toolkits, runtime.abi) == (("cuda-13", "rocm-7.2"), 0)
    assert runtime.contracts == {"attention.forward": 1}
    names = extract(tmp_path / "out" / runtime.file, tmp_path / "again", limit=1 << 26)
    assert {"lib/libaotbuild.so", "lib/libaotbuild.so.0"} <= set(names)
    with tarfile.open(fileobj=io.BytesIO(files[runtime.file])) as tar:
        assert tar.getmember("lib/libaotbuild.so").issym()


def test_compiled_packs_from_the_command_line_to_pip(
    tmp_path: Path,
    write_family: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands as HACKING.md has them, and what pip and a Python program make of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernels = str(write_family())
    compiled = ["compile", "--arch", "gfx942;sm_90", "--kernels", kernels, "--family", "tiny"]
    assert cli.run([*compiled, "--profile", "smoke"]) == 0
    assert cli.run(["new-key", "key.pem"]) == 0
    public = capsys.readouterr().out.split()[-1]
    assert stat.S_IMODE(Path("key.pem").stat().st_mode) == 0o600
    assert public_key(Path("key.pem").read_bytes()) == public
    words = ["release", "--out", "out", "--serial", "3", "--expires", "2999-12-31"]
    assert cli.run([*words, "--key", "key.pem", "--mirror", "https://example.org/x"]) == 0
    shown = capsys.readouterr().out
    index = read_index(Path("out/index.json").read_bytes(), "index")
    assert index.expires == dt.datetime(2999, 12, 31, 23, 59, 59, tzinfo=dt.timezone.utc)
    assert (index.serial, index.keys) == (3, (public,))
    for item in index.artifacts:
        assert item.file in shown
        assert item.sha256 in shown
    signature = Path("out/index.json.sig").read_text("ascii")
    assert verify(Path("out/index.json").read_bytes(), signature, [public], "index") == public

    wheels = [str(path) for path in Path("out").glob("*.whl")]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--target", "site"]
    subprocess.run([*command, *wheels], check=True)
    for arch in ("gfx942", "sm_90"):
        installed = Path("site/aotbuild_images", arch, "tiny.aotpack")
        assert installed.read_bytes() == Path("images", arch, "tiny.aotpack").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--unsigned", "--key", "k"], "name a --key to sign with, or say --unsigned"),
        ([], "name a --key to sign with, or say --unsigned"),
        (["--unsigned", "--serial", "0"], "--serial"),
        (["--unsigned", "--expires", "soon"], "--expires"),
        (["--unsigned", "--packs", "none"], "--packs is"),
    ],
)
def test_a_command_that_is_wrong(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = ["release", "--out", "out", "--serial", "1", "--expires", "2999-12-31"]
    assert cli.run([*usual, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("key.pem").write_text("precious")
    assert cli.run(["new-key", "key.pem"]) == 2
    assert "key.pem is there already" in capsys.readouterr().err
    assert Path("key.pem").read_text() == "precious"
