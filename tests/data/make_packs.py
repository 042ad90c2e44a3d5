"""Writes the packs in this folder, which the Python and the C++ reader both read in their tests.

`good*.aotpack` open and every image's code is intact. `bad_<status>_<what>.aotpack` fail, at open
or when a code object is read, with that status of the C ABI. Code objects are bare ELF headers:
enough for a reader, nothing for a driver. Run `python tests/data/make_packs.py` to write them anew.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from aotbuild import layout
from aotbuild.pack import compress, encode
from aotbuild.records import (
    ArgType,
    ArgumentRecord,
    Blob,
    ColumnRecord,
    DescriptorForm,
    DescriptorRecord,
    FactorRecord,
    ImageRecord,
    LaunchFacts,
    OperatorRecord,
    Pack,
    RowRecord,
    TensorRecord,
)
from aotbuild.spec import (
    Match,
    Source,
    SourceKind,
    dtype_of,
    dtype_value,
    pointer,
    size,
    stride,
    value,
)

HERE = Path(__file__).parent
_EM_AMDGPU, _GFX942, _GFX950 = 224, 0x54C, 0x54F
_INDEX_SIZE = struct.Struct("<Q")


def elf_header(machine: int, flags: int, filler: bytes) -> bytes:
    """An ELF64 header for a machine and e_flags, and some bytes behind it."""
    ident = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    header = struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)
    return ident + header + filler


def _arguments() -> tuple[ArgumentRecord, ...]:
    box = DescriptorRecord("x", DescriptorForm.TDM, 0, 16, (16, 64), warps=4, pad_interval=64)
    return (
        ArgumentRecord("x", ArgType.pointer, pointer("x"), divisibility=16, range32=True),
        ArgumentRecord("x_desc", ArgType.descriptor, Source(SourceKind.DESCRIPTOR), descriptor=box),
        ArgumentRecord("n", ArgType.i32, size("x", 0), divisibility=8),
        ArgumentRecord("row", ArgType.i64, stride("x", 0), divisibility=8),
        ArgumentRecord("factor", ArgType.fp32, value("factor")),
        ArgumentRecord("flag", ArgType.i1, Source(SourceKind.CONSTANT), constant=1),
        ArgumentRecord("global_scratch", ArgType.pointer, Source(SourceKind.GLOBAL_SCRATCH)),
        ArgumentRecord("profile_scratch", ArgType.pointer, Source(SourceKind.PROFILE_SCRATCH)),
    )


def good_pack(flags: int = _GFX942) -> Pack:
    """Two operators, three images of which two share their code, a known failure, all columns."""
    code = [elf_header(_EM_AMDGPU, flags, bytes([i]) * (4000 + i)) for i in range(2)]
    blobs = {blob.sha256: blob for blob in map(compress, code)}
    hashes = [compress(c).sha256 for c in (code[0], code[1], code[0])]
    facts = LaunchFacts("scale", _arguments(), shared=4096, threads=256, registers=64, spills=8)
    factors = (FactorRecord(0, size("x", 0), 128), FactorRecord(1, value("batch"), 1))
    images = tuple(
        ImageRecord(f"vector.scale/{i}", facts, factors, '{"num_warps":4}', sha, grid_cap=i)
        for i, sha in enumerate(hashes)
    )
    columns = (
        ColumnRecord("dtype", Match.EQUAL, dtype_of("x")),
        ColumnRecord("length", Match.AT_LEAST, size("x", 0), role=1),
        ColumnRecord("fast", Match.AT_MOST, value("fast")),
        ColumnRecord("padded", Match.SLACK, None, reference=1),
    )
    half, single = dtype_value("fp16"), dtype_value("fp32")
    rows = (
        RowRecord((half, 1024, 1, 0), "vector.scale/0"),
        RowRecord((half, 1 << 40, 0, 1), "vector.scale/1"),
        RowRecord((single, 1 << 40, 0, 1), None, "fp32 gives wrong sums here (test)"),
    )
    tensors = (
        TensorRecord("x", 2, contiguous_last=True),
        TensorRecord("out", 2, same_dtype_as=0, written=True),
        TensorRecord("mask", 1, dtype_value("u8"), optional=True),
    )
    other = OperatorRecord(
        "sum", 3, tensors[:1], columns[:1], (RowRecord((half,), images[2].name),)
    )
    return Pack(
        arch="gfx942", family="vector", producer="aotbuild test", vendor=2, tier=1, warp_size=64,
        operators=(OperatorRecord("scale", 1, tensors, columns, rows), other),
        images=images, blobs=blobs, meta='{"note":"made by tests/data/make_packs.py"}',
    )  # fmt: skip


def reseal(data: bytes) -> bytes:
    """Gives changed bytes a matching pack_id, so that what lies behind that check is reached."""
    (index_size,) = _INDEX_SIZE.unpack_from(data, 24)
    index = bytearray(data[:index_size])
    index[layout.PACK_ID] = bytes(32)
    index[layout.PACK_ID] = hashlib.sha256(index).digest()
    return bytes(index) + data[index_size:]


def table(data: bytes, name: str) -> tuple[int, int]:
    """(offset, count) of a table."""
    number = list(layout.TABLES).index(name)
    at = layout.HEADER.size + number * layout.DIRECTORY.size
    offset, count, _ = layout.DIRECTORY.unpack_from(data, at)
    return offset, count


def poke(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _poke_table(name: str, record: int, field: int, new: bytes) -> Callable[[bytes], bytes]:
    """Overwrites a field, by its offset in the record, and reseals."""

    def change(data: bytes) -> bytes:
        offset, _ = table(data, name)
        return reseal(poke(data, offset + record * layout.TABLES[name] + field, new))

    return change


def _cut_frame(pack: Pack) -> bytes:
    """A pack whose frames lack their last bytes while the index agrees with the shorter size."""
    blobs = {sha: replace(blob, frame=blob.frame[:-6]) for sha, blob in pack.blobs.items()}
    return encode(replace(pack, blobs=blobs))


def _wrong_content(pack: Pack) -> bytes:
    """Frames that are intact but hold other bytes than their hash says."""
    blobs = {
        sha: Blob(sha, blob.raw_size, compress(b"\0" * blob.raw_size).frame)
        for sha, blob in pack.blobs.items()
    }
    return encode(replace(pack, blobs=blobs))


def _swap_rows(data: bytes) -> bytes:
    """Puts the first EQUAL value of the first operator above that of its later rows."""
    offset, _ = table(data, "values")
    return reseal(poke(data, offset, (1 << 40).to_bytes(8, "little")))


_NONE_STRING = (1 << 30).to_bytes(4, "little")
_BIG = (1 << 20).to_bytes(4, "little")


def vectors() -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of every pack in this folder."""
    pack = good_pack()
    good = encode(pack)
    yield "good.aotpack", good
    yield "good_empty_rows.aotpack", encode(replace(pack, operators=()))
    yield "bad_pack_corrupt_empty.aotpack", b""
    yield "bad_pack_corrupt_magic.aotpack", b"notapack" + good[8:]
    yield "bad_pack_corrupt_header_only.aotpack", good[:100]
    yield "bad_pack_corrupt_truncated.aotpack", good[:-1]
    yield "bad_pack_corrupt_extended.aotpack", good + b"\0"
    yield "bad_pack_corrupt_index_bit.aotpack", poke(good, 300, bytes([good[300] ^ 1]))
    yield "bad_pack_corrupt_blob_bit.aotpack", poke(good, len(good) - 9, bytes([good[-9] ^ 4]))
    yield "bad_pack_corrupt_frame_cut.aotpack", _cut_frame(pack)
    yield "bad_pack_corrupt_content.aotpack", _wrong_content(pack)
    changes = {
        "string_offset": _poke_table("images", 0, 0, _NONE_STRING),
        "string_middle": _poke_table("operators", 0, 0, (2).to_bytes(4, "little")),
        "blob_index": _poke_table("images", 1, 4, _BIG),
        "argument_range": _poke_table("images", 0, 20, _BIG),
        "argument_type": _poke_table("arguments", 0, 4, b"\x63"),
        "source_kind": _poke_table("arguments", 2, 5, b"\x63"),
        "divisibility_zero": _poke_table("arguments", 0, 12, bytes(4)),
        "factor_divisor": _poke_table("factors", 0, 8, bytes(4)),
        "row_image": _poke_table("rows", 0, 0, _BIG),
        "row_range": _poke_table("operators", 0, 28, _BIG),
        "column_mode": _poke_table("columns", 0, 4, b"\x09"),
        "slack_reference": _poke_table("columns", 3, 12, _BIG),
        "reserved": _poke_table("tensors", 0, 20, b"\x01"),
        "threads": _poke_table("images", 0, 36, bytes(4)),
        "raw_size": _poke_table("blobs", 0, 16, (1 << 40).to_bytes(8, "little")),
        "blob_offset": _poke_table("blobs", 1, 0, (1 << 40).to_bytes(8, "little")),
        "descriptor_rank": _poke_table("descriptors", 0, 5, b"\x06"),
        "descriptor_form": _poke_table("descriptors", 0, 4, b"\x01"),
        "rank_of_tensor": _poke_table("tensors", 0, 4, b"\x01"),
        "pointer_from_size": _poke_table("arguments", 2, 4, bytes([ArgType.pointer])),
        "scratch_align": _poke_table("images", 0, 80, b"\x03"),
        "row_order": _swap_rows,
    }
    for name, change in changes.items():
        yield f"bad_pack_corrupt_{name}.aotpack", change(good)
    version = (layout.VERSION + 1).to_bytes(4, "little")
    yield "bad_pack_version_next.aotpack", reseal(poke(good, 8, version))
    yield "bad_pack_arch_code.aotpack", encode(good_pack(_GFX950))


if __name__ == "__main__":
    for old in HERE.glob("*.aotpack"):
        old.unlink()
    for name, data in vectors():
        (HERE / name).write_bytes(data)
        print(f"{name}: {len(data)} bytes")
