"""From a Pack to its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import Struct

from aotbuild import layout, pack_links
from aotbuild.errors import PackError
from aotbuild.records import (
    ArgumentRecord,
    ColumnRecord,
    DescriptorRecord,
    ImageRecord,
    OperatorRecord,
    Pack,
    TensorRecord,
)
from aotbuild.spec import Source, SourceKind


class _Strings:
    """The string pool: sorted, each string once, the empty one at 0."""

    def __init__(self, pack: Pack) -> None:
        found = {pack.arch, pack.family, pack.producer}
        for op in pack.operators:
            found.add(op.name)
            found.update(row.reason for row in op.rows)
            found.update(tensor.name for tensor in op.tensors)
            for column in op.columns:
                found.update((column.name, column.source.name if column.source else ""))
        for image in pack.images:
            found.update((image.name, image.options, image.facts.symbol))
            found.update(factor.source.name for factor in image.factors)
            for argument in image.facts.arguments:
                found.update((argument.name, argument.source.name))
                if argument.descriptor:
                    found.add(argument.descriptor.tensor)
        found.discard("")
        self._offsets = {"": 0}
        pool = bytearray(b"\0")
        for text in sorted(found):
            if not (text.isascii() and text.isprintable()):
                raise PackError(f"{text!r} cannot be stored in a pack: expected printable ASCII")
            self._offsets[text] = len(pool)
            pool += text.encode("ascii") + b"\0"
        self.pool = bytes(pool)

    def __getitem__(self, text: str) -> int:
        return self._offsets[text]


class _Encoder:
    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self._strings = _Strings(pack)
        self._tables = {name: bytearray() for name in layout.TABLES}
        self._image_index = {image.name: i for i, image in enumerate(pack.images)}
        self._blob_index = {sha: i for i, sha in enumerate(sorted(pack.blobs))}

    def _count(self, table: str) -> int:
        return len(self._tables[table]) // layout.TABLES[table]

    def _add(self, table: str, record: Struct, *fields: int | bytes) -> int:
        index = self._count(table)
        self._tables[table] += record.pack(*fields)
        return index

    def _source(self, source: Source | None) -> tuple[int, int, int]:
        if source is None:
            return 0, 0, 0
        return source.kind, source.dim, self._strings[source.name]

    def encode(self) -> bytes:
        pack = self._pack
        self._tables["strings"] += self._strings.pool
        self._tables["meta"] += pack.meta.encode()
        _check_sorted([op.name for op in pack.operators], "operators")
        _check_sorted([image.name for image in pack.images], "images")
        for problem in pack_links.problems(pack):
            raise PackError(problem)
        for op in pack.operators:
            self._operator(op)
        for image in pack.images:
            self._image(image)
        return self._finish()

    def _operator(self, op: OperatorRecord) -> None:
        first = tuple(self._count(t) for t in ("tensors", "columns", "rows", "values"))
        for tensor in op.tensors:
            self._tensor(tensor)
        for column in op.columns:
            self._column(column)
        for row in op.rows:
            if len(row.values) != len(op.columns):
                raise PackError(
                    f"operator {op.name}: a row has {len(row.values)} values "
                    f"for {len(op.columns)} columns"
                )
            for value in row.values:
                self._add("values", layout.VALUE, value)
            image = layout.NONE if row.image is None else self._image_index[row.image]
            self._add("rows", layout.ROW, image, self._strings[row.reason])
        counts = (len(op.tensors), len(op.columns), len(op.rows))
        spans = (x for pair in zip(first[:3], counts, strict=True) for x in pair)
        self._add(
            "operators",
            layout.OPERATOR,
            self._strings[op.name],
            op.contract,
            *spans,
            first[3],
            0,
        )

    def _tensor(self, tensor: TensorRecord) -> None:
        flags = tensor.optional | tensor.contiguous_last << 1 | tensor.written << 2
        same = layout.NONE if tensor.same_dtype_as is None else tensor.same_dtype_as
        name = self._strings[tensor.name]
        self._add("tensors", layout.TENSOR, name, tensor.rank, flags, tensor.dtype, same, b"")

    def _column(self, column: ColumnRecord) -> None:
        kind, dim, name = self._source(column.source)
        reference = layout.NONE if column.reference is None else column.reference
        self._add(
            "columns",
            layout.COLUMN,
            self._strings[column.name],
            column.mode,
            column.role,
            kind,
            dim,
            name,
            reference,
            b"",
        )

    def _image(self, image: ImageRecord) -> None:
        facts = image.facts
        first_argument, first_factor = self._count("arguments"), self._count("factors")
        for argument in facts.arguments:
            self._argument(argument)
        for factor in image.factors:
            kind, dim, name = self._source(factor.source)
            self._add("factors", layout.FACTOR, factor.axis, kind, dim, 0, name, factor.divisor, 0)
        self._add(
            "images",
            layout.IMAGE,
            self._strings[image.name],
            self._blob_index[image.code],
            self._strings[facts.symbol],
            self._strings[image.options],
            first_argument,
            len(facts.arguments),
            first_factor,
            len(image.factors),
            facts.shared,
            facts.threads,
            facts.num_ctas,
            *facts.cluster,
            facts.cooperative | facts.programmatic << 1,
            image.grid_cap,
            facts.global_scratch,
            facts.profile_scratch,
            facts.global_scratch_align,
            facts.profile_scratch_align,
            facts.registers,
            facts.spills,
            b"",
        )

    def _argument(self, argument: ArgumentRecord) -> None:
        kind, dim, name = self._source(argument.source)
        constant = argument.constant
        if argument.source.kind == SourceKind.DESCRIPTOR:
            if argument.descriptor is None:
                raise PackError(f"argument {argument.name}: a DESCRIPTOR source without descriptor")
            constant = self._descriptor(argument.descriptor)
        self._add(
            "arguments",
            layout.ARGUMENT,
            self._strings[argument.name],
            argument.type,
            kind,
            dim,
            int(argument.range32),
            name,
            argument.divisibility,
            constant,
            0,
        )

    def _descriptor(self, record: DescriptorRecord) -> int:
        box = record.box + (0,) * (5 - len(record.box))
        return self._add(
            "descriptors",
            layout.DESCRIPTOR,
            self._strings[record.tensor],
            record.form,
            len(record.box),
            record.element_type,
            record.element_bits,
            record.swizzle,
            record.flags,
            record.warps,
            *box,
            record.pad_interval,
            record.pad_amount,
            b"",
        )

    def _finish(self) -> bytes:
        """Places the tables, then the blobs behind them, and seals the index with its hash."""
        pack = self._pack
        blobs = [pack.blobs[sha] for sha in sorted(pack.blobs)]
        self._tables["blobs"] = bytearray(layout.BLOB.size * len(blobs))
        offset, directory = layout.HEADER_SIZE, bytearray()
        for name, record_size in layout.TABLES.items():
            directory += layout.DIRECTORY.pack(offset, self._count(name), record_size)
            offset += -(-len(self._tables[name]) // 8) * 8
        index_size = offset
        for i, blob in enumerate(blobs):
            digest = bytes.fromhex(blob.sha256)
            layout.BLOB.pack_into(
                self._tables["blobs"],
                i * layout.BLOB.size,
                offset,
                len(blob.frame),
                blob.raw_size,
                digest,
                0,
            )
            offset += len(blob.frame)
        names = (self._strings[text] for text in (pack.arch, pack.family, pack.producer))
        index = bytearray(
            layout.HEADER.pack(
                layout.MAGIC,
                layout.VERSION,
                layout.HEADER_SIZE,
                offset,
                index_size,
                b"",
                *names,
                pack.vendor,
                pack.tier,
                pack.warp_size,
                0,
            )
        )
        index += directory
        for name in layout.TABLES:
            index += self._tables[name] + b"\0" * (-len(self._tables[name]) % 8)
        index[layout.PACK_ID] = hashlib.sha256(index).digest()
        return bytes(index) + b"".join(blob.frame for blob in blobs)


def _check_sorted(names: Sequence[str], what: str) -> None:
    if sorted(set(names)) != list(names):
        raise PackError(f"{what} must be sorted by name, each name once: got {names}")


def encode(pack: Pack) -> bytes:
    """The bytes of a pack. Raises PackError when its parts contradict each other."""
    return _Encoder(pack).encode()
