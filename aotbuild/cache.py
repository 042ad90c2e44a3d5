"""Compiled images kept between builds, and the folders that a build works in.

`<cache_dir>/images/<2>/<key>` holds one image, where the key is a digest of all that decides it.
A damaged entry counts as absent, so that nothing in here can spoil a build; a cache that cannot
be written to costs time, not the build.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aotbuild.errors import UsageError
from aotbuild.records import CompiledImage, facts_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_KEY = re.compile(r"[0-9a-f]{16,128}")
_HASH_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 8


def encode_image(image: CompiledImage) -> bytes:
    """SHA-256 of the rest, length of the JSON text, JSON text of facts and options, code."""
    facts = {"facts": dataclasses.asdict(image.facts), "options": dict(image.options)}
    text = json.dumps(facts, sort_keys=True).encode("ascii")
    body = len(text).to_bytes(_LENGTH_BYTES, "little") + text + image.code
    return hashlib.sha256(body).digest() + body


def decode_image(data: bytes) -> CompiledImage:
    """Inverse of `encode_image`. Raises ValueError when the data are damaged."""
    digest, body = data[:_HASH_BYTES], data[_HASH_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("checksum does not match")
    end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "little")
    try:
        stored = json.loads(body[_LENGTH_BYTES:end])
        return CompiledImage(facts_from_json(stored["facts"]), stored["options"], body[end:])
    except (KeyError, TypeError) as error:  # intact, but written by another aotbuild
        raise ValueError(f"unknown layout: {error!r}") from error


class ImageCache:
    """A folder of compiled images. Any number of processes may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        """Touches nothing yet."""
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of `key` is, or would be."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"cache key {key!r} is not lower-case hexadecimal")
        return self.folder / "images" / key[:2] / key

    def get(self, key: str) -> CompiledImage | None:
        """The image of `key`, or None. Removes a damaged entry, and marks a good one as used."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            image = decode_image(data)
        except ValueError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return image

    def put(self, key: str, image: CompiledImage, scratch: Path) -> None:
        """Stores an image, writing it first in `scratch`, which must be on the same file system.

        A full disk or a read-only cache is no error: the image itself is not lost.
        """
        path = self.path(key)
        aside = scratch / f"{key}.image"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(encode_image(image))
            aside.replace(path)

    def prune(self, limit: int) -> None:
        """Removes the entries used longest ago, until all take at most `limit` bytes."""
        prune(self.folder.glob("images/??/*"), limit)

    @contextlib.contextmanager
    def run_folder(self) -> Iterator[Path]:
        """A folder for one build, removed at its end however it ends. Removes what builds that
        were killed outright have left. Raises UsageError when the cache cannot be made.
        """
        runs = self.folder / "runs"
        with contextlib.ExitStack() as stack:
            try:
                runs.mkdir(parents=True, exist_ok=True)
                with locked(runs):  # or another sweep could take the folder for a leftover
                    _sweep(runs)
                    folder = stack.enter_context(temporary_folder(runs))
                    lock = stack.enter_context((folder / "lock").open("w"))
                    fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise UsageError(
                    f"cache folder {self.folder} cannot be used: {error.strerror}. "
                    "Set cache_dir to another folder, or build with --no-cache"
                ) from error
            yield folder


def prune(paths: Iterable[Path], limit: int, remove: Callable[[Path], None] = Path.unlink) -> None:
    """Removes the files used longest ago, until all take at most `limit` bytes. One that cannot be
    removed stays; one that another process removes is no error.
    """
    entries = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime_ns, path.name, status.st_size, path))
    total = sum(size for _, _, size, _ in entries)
    for _, _, size, path in sorted(entries):
        if total <= limit:
            return
        try:
            remove(path)
        except FileNotFoundError:
            pass
        except OSError:
            continue
        total -= size


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="aotbuild-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out of the same block for the same folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(runs: Path) -> None:
    """Removes run folders whose lock nobody holds."""
    for folder in runs.iterdir():
        with contextlib.suppress(OSError), (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
