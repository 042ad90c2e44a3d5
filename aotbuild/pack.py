"""Packs: the value, its bytes, and its file (docs/pack-format.md).

`Pack.encode` and `Pack.decode` are inverse; equal packs have equal bytes. `decode` checks all that
the C++ reader checks, so that a pack which `aotbuild inspect` shows is one that the runtime opens.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from aotbuild import pack_decode, pack_encode
from aotbuild.errors import PackCorruptError, PackError
from aotbuild.records import Blob, ImageRecord, OperatorRecord

#: zstd level of image frames: 19 packs code objects about 8 % tighter than the default, at a
#: cost that is small beside the compile.
ZSTD_LEVEL = 19


@dataclass(frozen=True)
class Pack:
    """All images of one family for one arch. `vendor` is 1 for CUDA and 2 for HIP, `tier` 0
    stable, 1 experimental, 2 preview. `images` are sorted by name, `blobs` by hash. `meta` is
    JSON text with provenance."""

    arch: str
    family: str
    producer: str
    vendor: int
    tier: int
    warp_size: int
    operators: tuple[OperatorRecord, ...]
    images: tuple[ImageRecord, ...]
    blobs: Mapping[str, Blob] = field(repr=False)
    meta: str = field(repr=False)
    pack_id: str = ""

    def encode(self) -> bytes:
        """The pack's bytes. Raises PackError when its parts contradict each other."""
        return pack_encode.encode(self)

    @staticmethod
    def decode(data: bytes, name: str = "<memory>") -> Pack:
        """Raises PackCorruptError, PackVersionError; the message names `name` and the place."""
        return Pack(**pack_decode.decode(data, name))

    @staticmethod
    def open(path: Path) -> Pack:
        """Reads and checks a pack file. Raises as `decode`, and PackError if it cannot be read."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PackError(f"cannot read pack {path}: {error.strerror}") from error
        return Pack.decode(data, str(path))

    def image(self, name: str) -> ImageRecord:
        for image in self.images:
            if image.name == name:
                return image
        raise KeyError(name)

    def code(self, image: ImageRecord) -> bytes:
        """The image's code object, checked against its size and SHA-256."""
        blob = self.blobs[image.code]
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
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
