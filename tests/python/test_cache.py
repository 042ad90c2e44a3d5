"""The cache of compiled images: damage, sharing, its bound, and leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotbuild.cache import ImageCache, decode_image, encode_image
from aotbuild.errors import UsageError
from aotbuild.records import (
    ArgType,
    ArgumentRecord,
    CompiledImage,
    DescriptorForm,
    DescriptorRecord,
    LaunchFacts,
)
from aotbuild.spec import Source, SourceKind

_ARGUMENTS = (
    ArgumentRecord("x", ArgType.pointer, Source(SourceKind.POINTER, "x"), divisibility=16),
    ArgumentRecord(
        "d",
        ArgType.descriptor,
        Source(SourceKind.DESCRIPTOR),
        descriptor=DescriptorRecord("x", DescriptorForm.TENSOR_MAP, 6, 16, (128, 64), swizzle=3),
    ),
)
_IMAGE = CompiledImage(
    LaunchFacts("kernel", _ARGUMENTS, shared=1024, threads=128, cluster=(2, 1, 1)),
    {"num_warps": 4, "name": "a"},
    b"\x7fELF code",
)
_KEYS = tuple(digit * 64 for digit in "0123")


@given(st.data())
def test_no_damage_goes_unnoticed(data: st.DataObject) -> None:
    good = encode_image(_IMAGE)
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = good[:at] + bytes([good[at] ^ 1 << data.draw(st.integers(0, 7))]) + good[at + 1 :]
    for bad in (flipped, good[:at], good + b"\0"):
        with pytest.raises(ValueError, match="checksum"):
            decode_image(bad)


def test_another_layout_is_refused() -> None:
    for body in (
        b"",
        bytes(8),
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
    ):
        with pytest.raises(ValueError, match=r"layout|Expecting value"):
            decode_image(hashlib.sha256(body).digest() + body)


@given(st.binary())
def test_images_round_trip(code: bytes) -> None:
    image = CompiledImage(_IMAGE.facts, _IMAGE.options, code)
    assert decode_image(encode_image(image)) == image


@pytest.mark.parametrize("key", ["", "../../x", "A" * 64, "0" * 8])
def test_keys_are_checked(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        ImageCache(tmp_path).get(key)


def test_a_damaged_entry_is_a_miss_and_is_removed(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path)
    cache.put(_KEYS[0], _IMAGE, tmp_path)
    path = cache.path(_KEYS[0])
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get(_KEYS[0]) is None
    assert not path.exists()
    assert cache.get(_KEYS[0]) is None


def test_an_entry_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "images").touch()
    ImageCache(tmp_path).put(_KEYS[0], _IMAGE, tmp_path)
    assert ImageCache(tmp_path).get(_KEYS[0]) is None


def test_the_least_used_go_first(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path)
    for age, key in enumerate(_KEYS):
        cache.put(key, _IMAGE, tmp_path)
        os.utime(cache.path(key), (age, age))
    assert cache.get(_KEYS[0]) == _IMAGE  # now the one used last
    size = len(encode_image(_IMAGE))
    cache.prune(4 * size)
    assert all(cache.path(key).exists() for key in _KEYS)
    cache.prune(2 * size)
    assert [cache.path(key).exists() for key in _KEYS] == [True, False, False, True]
    cache.prune(0)
    assert not any(cache.path(key).exists() for key in _KEYS)


def test_run_folders_go_however_a_run_ends(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path)
    stack = contextlib.ExitStack()
    folder = stack.enter_context(cache.run_folder())
    (folder / "left").touch()
    with pytest.raises(KeyboardInterrupt), stack:
        raise KeyboardInterrupt
    assert list((tmp_path / "runs").iterdir()) == []


def test_leftovers_of_killed_runs_are_swept_and_live_ones_kept(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("dead", "live"):
        (runs / name).mkdir(parents=True)
        (runs / name / "lock").touch()
    with (runs / "live" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ImageCache(tmp_path).run_folder():
            assert not (runs / "dead").exists()
            assert (runs / "live").exists()


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ImageCache(tmp_path / "file" / "cache")
    with pytest.raises(UsageError, match=r"cannot be used: .*Set cache_dir"), cache.run_folder():
        pass
