"""Packs as files: encode, decode, open, write (docs/pack-format.md).

`encode` and `decode` are inverse; equal packs have equal bytes. `decode` checks all that the C++
reader checks, so that a pack which `aotbuild inspect` shows is one that the runtime opens.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import zstandard

from aotbuild.elf import check_arch
from aotbuild.errors import PackCorruptError, PackError
from aotbuild.pack_decode import decode
from aotbuild.pack_encode import encode
from aotbuild.records import Blob, ImageRecord, Pack
from aotbuild.target import ARCH_BY_NAME

__all__ = [
    "check_codes",
    "compress",
    "decode",
    "encode",
    "open_pack",
    "read_code",
    "sync_folder",
    "write_file",
]

#: zstd level of image frames: 19 packs code objects about 8 % tighter than the default, at a
#: cost that is small beside the compile.
ZSTD_LEVEL = 19


def open_pack(path: Path) -> Pack:
    """Reads and checks a pack file. Raises as `decode`, and PackError if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PackError(f"cannot read pack {path}: {error.strerror}") from error
    return decode(data, str(path))


def read_code(pack: Pack, image: ImageRecord) -> bytes:
    """An image's code object, checked against its size and SHA-256. Raises PackCorruptError."""
    blob = pack.blobs[image.code]
    try:
        raw = zstandard.ZstdDecompressor().decompress(
            blob.frame, max_output_size=blob.raw_size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise PackCorruptError(f"image {image.name}: zstd frame is damaged: {error}") from error
    if len(raw) != blob.raw_size:
        raise PackCorruptError(
            f"image {image.name}: {len(raw)} bytes after decompression, "
            f"the index says {blob.raw_size}"
        )
    digest = hashlib.sha256(raw).hexdigest()
    if digest != blob.sha256:
        raise PackCorruptError(
            f"image {image.name}: SHA-256 is {digest}, the index says {blob.sha256}"
        )
    return raw


def check_codes(pack: Pack) -> None:
    """Reads every code object, and checks that it is for the pack's arch (where that is an arch of
    this aotbuild). Raises PackCorruptError, PackArchError.
    """
    arch = ARCH_BY_NAME.get(pack.arch)
    for image in {image.code: image for image in pack.images}.values():
        code = read_code(pack, image)
        if arch is not None:
            check_arch(code, arch)


def compress(code: bytes) -> Blob:
    """A code object as a pack stores it: one frame with content size and checksum."""
    compressor = zstandard.ZstdCompressor(
        level=ZSTD_LEVEL, write_checksum=True, write_content_size=True, threads=0
    )
    return Blob(hashlib.sha256(code).hexdigest(), len(code), compressor.compress(code))


def write_file(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: aside in the same folder, fsync, rename, fsync folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
