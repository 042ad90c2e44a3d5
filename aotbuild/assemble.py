"""From compiled images to a pack: the description's tensors, columns, rows and grids. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aotbuild.errors import SpecError
from aotbuild.families import LoadedFamily
from aotbuild.pack import compress
from aotbuild.plan import Variant
from aotbuild.records import (
    Blob,
    ColumnRecord,
    CompiledImage,
    FactorRecord,
    ImageRecord,
    OperatorRecord,
    Pack,
    RowRecord,
    TensorRecord,
)
from aotbuild.spec import DTYPES, Axis, Match, Operator, dtype_value
from aotbuild.target import TIERS, Arch

_VENDORS = {"cuda": 1, "hip": 2}


def build_pack(
    family: LoadedFamily,
    arch: Arch,
    profile: str,
    images: Sequence[tuple[Variant, CompiledImage]],
    toolchain: Mapping[str, str],
    producer: str,
) -> Pack:
    """The pack of `family` for `arch`. `images` are in dispatch order (as `plan` gives them)."""
    blobs: dict[str, Blob] = {}
    records: list[ImageRecord] = []
    by_code: dict[bytes, str] = {}
    for variant, image in images:
        if image.code not in by_code:
            blob = compress(image.code)
            by_code[image.code], blobs[blob.sha256] = blob.sha256, blob
        operator = family.family.operator(variant.operator)
        records.append(_image(operator, variant, image, by_code[image.code]))
    meta = {
        "family_source": family.source_hash,
        "profile": profile,
        "toolchain": dict(sorted(toolchain.items())),
        "omissions": [],
        "tuning": {variant.name: variant.provenance for variant, _ in images if variant.chosen},
    }
    return Pack(
        arch=arch.name,
        family=family.family.name,
        producer=producer,
        vendor=_VENDORS[arch.vendor],
        tier=TIERS.index(arch.tier),
        warp_size=arch.warp_size,
        operators=tuple(
            _operator_record(operator, [variant for variant, _ in images])
            for operator in sorted(family.family.operators, key=lambda op: op.name)
        ),
        images=tuple(sorted(records, key=lambda record: record.name)),
        blobs=blobs,
        meta=json.dumps(meta, sort_keys=True, separators=(",", ":")),
    )


def _image(operator: Operator, variant: Variant, image: CompiledImage, code: str) -> ImageRecord:
    config = dict(variant.config)
    factors = tuple(
        FactorRecord(axis, factor.source, _number(operator, factor.divisor, config))
        for axis, parts in enumerate(operator.grid)
        for factor in parts
    )
    return ImageRecord(
        name=variant.name,
        facts=image.facts,
        factors=factors,
        options=json.dumps(image.options, sort_keys=True, separators=(",", ":")),
        code=code,
        grid_cap=config[operator.grid_cap] if operator.grid_cap else 0,
    )


def _number(operator: Operator, divisor: int | str, config: Mapping[str, int]) -> int:
    if isinstance(divisor, int):
        return divisor
    if divisor in config:
        return config[divisor]
    if divisor in operator.constants:
        return operator.constants[divisor]
    raise SpecError(f"operator {operator.name}: grid divisor {divisor!r} is no config or constant")


def _operator_record(operator: Operator, variants: Sequence[Variant]) -> OperatorRecord:
    names = [axis.name for axis in operator.axes]
    rows = [
        RowRecord(tuple(_value(value) for _, value in variant.key), variant.name)
        for variant in variants
        if variant.operator == operator.name and variant.chosen
    ]
    equal = sum(axis.match is Match.EQUAL for axis in operator.axes)
    rows.sort(key=lambda row: row.values[:equal])  # stable: keeps the order of preference
    return OperatorRecord(
        operator.name,
        operator.contract,
        _tensors(operator),
        tuple(_column(axis, names) for axis in operator.axes),
        tuple(rows),
    )


def _tensors(operator: Operator) -> tuple[TensorRecord, ...]:
    """Fixed dtypes as such; tensors that share a dtype axis refer to the first of them."""
    first: dict[str, int] = {}
    records = []
    for i, tensor in enumerate(operator.tensors):
        fixed = tensor.dtype in DTYPES
        same = None if fixed else first.setdefault(tensor.dtype, i)
        records.append(
            TensorRecord(
                tensor.name,
                tensor.rank,
                dtype_value(tensor.dtype) if fixed else 0,
                None if same == i else same,
                tensor.optional,
                tensor.contiguous_last,
                tensor.written,
            )
        )
    return tuple(records)


def _column(axis: Axis, names: Sequence[str]) -> ColumnRecord:
    reference = names.index(axis.of) if axis.of else None
    return ColumnRecord(axis.name, axis.match, axis.source, reference=reference)


def _value(value: int | str) -> int:
    return value if isinstance(value, int) else dtype_value(value)
