"""From a pack's bytes to a Pack, trusting nothing.

The checks are those of the runtime's reader (runtime/src/pack*.cc); both run over the packs in
tests/data, good and bad.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from struct import Struct
from typing import Any

from aotbuild import layout, pack_links
from aotbuild.errors import PackCorruptError, PackVersionError
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
from aotbuild.spec import Match, Source, SourceKind

_MAX_RAW = 1 << 30
_TENSOR_SOURCES = (
    SourceKind.POINTER,
    SourceKind.SIZE,
    SourceKind.STRIDE,
    SourceKind.DTYPE,
    SourceKind.PRESENT,
)
_INTEGER_SOURCES = (SourceKind.SIZE, SourceKind.STRIDE, SourceKind.VALUE, SourceKind.DTYPE,
                    SourceKind.PRESENT)  # fmt: skip


class _Decoder:
    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._tables: dict[str, bytes] = {}

    def _fail(self, text: str) -> PackCorruptError:
        return PackCorruptError(f"{self._name}: {text}")

    def _check(self, ok: bool, text: str) -> None:
        if not ok:
            raise self._fail(text)

    def decode(self) -> Pack:
        header = self._header()
        self._directory(header[4])
        self._check_strings()
        self._descriptors = list(self._records("descriptors", layout.DESCRIPTOR))
        blobs = self._blobs(header[4])
        images = self._images(list(blobs))
        operators = self._operators([image.name for image in images])
        meta = self._tables["meta"]
        try:
            json.loads(meta)
        except ValueError as error:
            raise self._fail(f"meta is not JSON: {error}") from error
        pack = Pack(
            arch=self._string(header[6], "header arch"),
            family=self._string(header[7], "header family"),
            producer=self._string(header[8], "header producer"),
            vendor=header[9],
            tier=header[10],
            warp_size=header[11],
            operators=operators,
            images=images,
            blobs=blobs,
            meta=meta.decode(),
            pack_id=header[5].hex(),
        )
        for problem in pack_links.problems(pack):
            raise self._fail(problem)
        return pack

    # ---- header and tables -------------------------------------------------------------------

    def _header(self) -> tuple[Any, ...]:
        data = self._data
        self._check(
            len(data) >= 12 and data[:8] == layout.MAGIC,
            f"not a pack: expected it to start with {layout.MAGIC!r}, found {data[:8]!r}",
        )
        version = int.from_bytes(data[8:12], "little")
        if version != layout.VERSION:
            raise PackVersionError(
                f"{self._name}: pack format version {version}; this aotbuild reads version "
                f"{layout.VERSION}. Use the aotbuild that made it, or compile the pack again."
            )
        self._check(len(data) >= layout.HEADER_SIZE, f"truncated: {len(data)} bytes, no header")
        header = layout.HEADER.unpack_from(data)
        _, _, header_size, file_size, index_size = header[:5]
        self._check(header_size == layout.HEADER_SIZE, f"header_size is {header_size}")
        self._check(
            file_size == len(data), f"truncated or extended: {len(data)} of {file_size} bytes"
        )
        self._check(
            layout.HEADER_SIZE <= index_size <= file_size,
            f"index_size {index_size} is out of range",
        )
        index = bytearray(data[:index_size])
        index[layout.PACK_ID] = bytes(32)
        self._check(
            hashlib.sha256(index).digest() == header[5],
            "pack_id does not match the index's SHA-256",
        )
        self._check(header[9] in (1, 2), f"vendor is {header[9]}, expected 1 or 2")
        self._check(header[10] in (0, 1, 2), f"tier is {header[10]}, expected 0, 1 or 2")
        self._check(header[11] in (32, 64), f"warp_size is {header[11]}, expected 32 or 64")
        self._check(header[12] == 0, "reserved header field is not zero")
        return header

    def _directory(self, index_size: int) -> None:
        end = layout.HEADER_SIZE
        for i, (name, record_size) in enumerate(layout.TABLES.items()):
            offset, count, size = layout.DIRECTORY.unpack_from(
                self._data, layout.HEADER.size + i * layout.DIRECTORY.size
            )
            self._check(size == record_size, f"table {name}: record size {size}")
            self._check(offset == end, f"table {name}: offset {offset}, expected {end}")
            end = offset + -(-count * record_size // 8) * 8
            self._check(end <= index_size, f"table {name}: ends at {end}, beyond the index")
            self._tables[name] = self._data[offset : offset + count * record_size]
            padding = self._data[offset + count * record_size : end]
            self._check(not any(padding), f"table {name}: padding is not zero")
        self._check(end == index_size, f"tables end at {end}, index_size is {index_size}")

    def _records(self, table: str, record: Struct) -> Iterator[tuple[Any, ...]]:
        return record.iter_unpack(self._tables[table])

    def _check_strings(self) -> None:
        pool = self._tables["strings"]
        self._check(pool[:1] == b"\0" and pool[-1:] == b"\0", "string pool is not NUL-terminated")
        bad = [byte for byte in pool if byte != 0 and not 0x20 <= byte < 0x7F]
        self._check(not bad, f"string pool holds byte {bad[:1]}, expected printable ASCII")

    def _string(self, offset: int, where: str) -> str:
        pool = self._tables["strings"]
        starts = offset == 0 or (offset < len(pool) and pool[offset - 1] == 0)
        self._check(starts, f"{where}: {offset} is not the start of a string")
        return pool[offset : pool.index(b"\0", offset)].decode("ascii")

    def _slice(self, records: list[Any], first: int, count: int, where: str) -> list[Any]:
        self._check(first + count <= len(records), f"{where}: {first}+{count} of {len(records)}")
        return records[first : first + count]

    def _source(
        self, kind: int, dim: int, name: int, where: str, allowed: tuple[SourceKind, ...]
    ) -> Source:
        self._check(kind in allowed, f"{where}: source kind {kind} is not allowed here")
        source = Source(SourceKind(kind), self._string(name, where), dim)
        named = kind in _TENSOR_SOURCES or kind == SourceKind.VALUE
        self._check(bool(source.name) == named, f"{where}: source name {source.name!r}")
        dims = kind in (SourceKind.SIZE, SourceKind.STRIDE)
        self._check(dim < 8 if dims else dim == 0, f"{where}: source dim {dim}")
        return source

    # ---- blobs and images --------------------------------------------------------------------

    def _blobs(self, offset: int) -> dict[str, Blob]:
        blobs: dict[str, Blob] = {}
        last = ""
        for i, (start, size, raw, digest, reserved) in enumerate(
            self._records("blobs", layout.BLOB)
        ):
            where, sha = f"blob {i}", digest.hex()
            self._check(start == offset and size > 0, f"{where}: at {start}, expected {offset}")
            self._check(0 < raw <= _MAX_RAW and reserved == 0, f"{where}: raw size {raw}")
            self._check(sha > last, f"{where}: blobs are not sorted by SHA-256")
            offset, last = offset + size, sha
            self._check(offset <= len(self._data), f"{where}: ends at {offset}, beyond the file")
            blobs[sha] = Blob(sha, raw, self._data[start:offset])
        self._check(
            offset == len(self._data), f"blobs end at {offset}, the file at {len(self._data)}"
        )
        return blobs

    def _images(self, hashes: list[str]) -> tuple[ImageRecord, ...]:
        arguments = [
            self._argument(i, r) for i, r in enumerate(self._records("arguments", layout.ARGUMENT))
        ]
        factors = [
            self._factor(i, r) for i, r in enumerate(self._records("factors", layout.FACTOR))
        ]
        images: list[ImageRecord] = []
        for i, f in enumerate(self._records("images", layout.IMAGE)):
            where = f"image {i}"
            name = self._string(f[0], where)
            self._check(bool(name), f"{where}: has no name")
            self._check(not images or images[-1].name < name, f"{where}: not sorted: {name}")
            self._check(f[1] < len(hashes), f"{where}: blob {f[1]} of {len(hashes)}")
            self._check(1 <= f[9] <= 1024, f"{where}: {f[9]} threads")
            self._check(min(f[10:14]) >= 1, f"{where}: num_ctas or cluster is 0")
            self._check(f[14] <= 3 and not any(f[22]), f"{where}: unknown flags or reserved bytes")
            facts = LaunchFacts(
                symbol=self._string(f[2], where),
                arguments=tuple(self._slice(arguments, f[4], f[5], f"{where} arguments")),
                shared=f[8],
                threads=f[9],
                num_ctas=f[10],
                cluster=(f[11], f[12], f[13]),
                cooperative=bool(f[14] & 1),
                programmatic=bool(f[14] & 2),
                global_scratch=f[16],
                profile_scratch=f[17],
                global_scratch_align=f[18],
                profile_scratch_align=f[19],
                registers=f[20],
                spills=f[21],
            )
            self._check(bool(facts.symbol), f"{where}: has no entry symbol")
            parts = self._slice(factors, f[6], f[7], f"{where} factors")
            options = self._string(f[3], where)
            images.append(ImageRecord(name, facts, tuple(parts), options, hashes[f[1]], f[15]))
        return tuple(images)

    def _argument(self, index: int, record: tuple[Any, ...]) -> ArgumentRecord:
        name, kind, source_kind, dim, flags, source_name, divisibility, constant, reserved = record
        where = f"argument {index}"
        self._check(kind in ArgType.__members__.values(), f"{where}: type {kind}")
        self._check(flags <= 1 and reserved == 0, f"{where}: flags {flags}")
        self._check(divisibility >= 1, f"{where}: divisibility is 0")
        source = self._source(source_kind, dim, source_name, where, tuple(SourceKind))
        descriptor = None
        if source.kind is SourceKind.DESCRIPTOR:
            count = len(self._descriptors)
            self._check(0 <= constant < count, f"{where}: descriptor {constant} of {count}")
            descriptor, constant = self._descriptor(constant), 0
        return ArgumentRecord(
            self._string(name, where), ArgType(kind), source, constant, divisibility, bool(flags),
            descriptor,
        )  # fmt: skip

    def _descriptor(self, index: int) -> DescriptorRecord:
        r, where = self._descriptors[index], f"descriptor {index}"
        tensor, form, rank, element_type, bits, swizzle, flags, warps = r[:8]
        self._check(form in (1, 2) and 1 <= rank <= 5, f"{where}: form {form}, rank {rank}")
        self._check(flags <= 7 and not any(r[15]), f"{where}: unknown flags or reserved bytes")
        self._check(1 <= bits <= 64, f"{where}: {bits} bits an element")
        self._check(not any(r[8 + rank : 13]), f"{where}: box has more entries than its rank")
        self._check(all(r[8 : 8 + rank]), f"{where}: box entry is 0")
        return DescriptorRecord(
            self._string(tensor, where), DescriptorForm(form), element_type, bits,
            tuple(r[8 : 8 + rank]), swizzle, flags, warps, r[13], r[14],
        )  # fmt: skip

    def _factor(self, index: int, record: tuple[Any, ...]) -> FactorRecord:
        axis, kind, dim, pad, name, divisor, reserved = record
        where = f"factor {index}"
        self._check(axis <= 2 and pad == 0 and reserved == 0, f"{where}: axis {axis}")
        self._check(divisor >= 1, f"{where}: divisor is 0")
        allowed = (SourceKind.SIZE, SourceKind.VALUE)
        return FactorRecord(axis, self._source(kind, dim, name, where, allowed), divisor)

    # ---- operators ---------------------------------------------------------------------------

    def _operators(self, image_names: list[str]) -> tuple[OperatorRecord, ...]:
        tensors = list(self._records("tensors", layout.TENSOR))
        columns = list(self._records("columns", layout.COLUMN))
        rows = list(self._records("rows", layout.ROW))
        values = [v for (v,) in self._records("values", layout.VALUE)]
        operators: list[OperatorRecord] = []
        for i, f in enumerate(self._records("operators", layout.OPERATOR)):
            where = f"operator {i}"
            name = self._string(f[0], where)
            self._check(bool(name) and f[9] == 0, f"{where}: no name, or reserved field not zero")
            self._check(not operators or operators[-1].name < name, f"{where}: not sorted: {name}")
            self._check(1 <= f[5] <= 32, f"{where}: {f[5]} columns, expected 1 to 32")
            my_tensors = self._slice(tensors, f[2], f[3], f"{where} tensors")
            my_columns = self._slice(columns, f[4], f[5], f"{where} columns")
            my_rows = self._slice(rows, f[6], f[7], f"{where} rows")
            my_values = self._slice(values, f[8], f[7] * f[5], f"{where} values")
            operators.append(
                OperatorRecord(
                    name,
                    f[1],
                    tuple(self._tensor(r, len(my_tensors), where) for r in my_tensors),
                    tuple(self._column(r, len(my_columns), where) for r in my_columns),
                    tuple(
                        self._row(r, my_values[j * f[5] : (j + 1) * f[5]], image_names, where)
                        for j, r in enumerate(my_rows)
                    ),
                )
            )
        return tuple(operators)

    def _tensor(self, record: tuple[Any, ...], count: int, where: str) -> TensorRecord:
        name, rank, flags, dtype, same, reserved = record
        self._check(1 <= rank <= 8, f"{where}: tensor rank {rank}")
        self._check(flags <= 7 and not any(reserved), f"{where}: tensor flags {flags}")
        self._check(same == layout.NONE or same < count, f"{where}: same_dtype_as {same}")
        return TensorRecord(
            self._string(name, where), rank, dtype, None if same == layout.NONE else same,
            bool(flags & 1), bool(flags & 2), bool(flags & 4),
        )  # fmt: skip

    def _column(self, record: tuple[Any, ...], count: int, where: str) -> ColumnRecord:
        name, mode, role, kind, dim, source_name, reference, reserved = record
        self._check(mode <= 3 and role <= 1 and not any(reserved), f"{where}: column mode {mode}")
        slack = mode == Match.SLACK
        ok = reference < count if slack else reference == layout.NONE
        self._check(ok, f"{where}: column reference {reference}")
        source = None
        if slack:
            self._check(kind == dim == source_name == 0, f"{where}: SLACK column with a source")
        else:
            source = self._source(kind, dim, source_name, where, _INTEGER_SOURCES)
        label = self._string(name, where)
        return ColumnRecord(label, Match(mode), source, role, reference if slack else None)

    def _row(
        self, record: tuple[Any, ...], values: list[int], names: list[str], where: str
    ) -> RowRecord:
        image, reason = record[0], self._string(record[1], where)
        known = image == layout.NONE
        self._check(known or image < len(names), f"{where}: row image {image} of {len(names)}")
        self._check(known == bool(reason), f"{where}: a row has an image, or else a reason")
        return RowRecord(tuple(values), None if known else names[image], reason)


def decode(data: bytes, name: str = "<memory>") -> Pack:
    """The pack in `data`. Raises PackCorruptError and PackVersionError, which name `name`, the
    place and the value found there."""
    return _Decoder(data, name).decode()
