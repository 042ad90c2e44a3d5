"""What `aotbuild inspect` tells of a pack: as JSON with a stable layout, and for people."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import TYPE_CHECKING, Any

from aotbuild.report import size, table
from aotbuild.spec import DTYPES, SourceKind, dtype_value
from aotbuild.target import TIERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from aotbuild.records import ColumnRecord, OperatorRecord, Pack, TensorRecord
    from aotbuild.spec import Source

_VENDORS = {1: "cuda", 2: "hip"}
_DTYPE_NAMES = {dtype_value(name): name for name in DTYPES}
_SIGNS = {"EQUAL": "=", "AT_LEAST": "<=", "AT_MOST": ">="}


def pack_json(pack: Pack) -> dict[str, Any]:
    """A pack's index. Keys are only ever added; enumerations are their names in lower case."""
    blobs = {
        digest: {"raw_bytes": blob.raw_size, "packed_bytes": len(blob.frame)}
        for digest, blob in sorted(pack.blobs.items())
    }
    images = []
    for image in pack.images:
        shown: dict[str, Any] = _plain(image)
        images.append({**shown, "options": json.loads(image.options)})
    return {
        "arch": pack.arch,
        "family": pack.family,
        "producer": pack.producer,
        "pack_id": pack.pack_id,
        "vendor": _VENDORS[pack.vendor],
        "tier": TIERS[pack.tier],
        "warp_size": pack.warp_size,
        "operators": [_plain(operator) for operator in pack.operators],
        "images": images,
        "code": blobs,
        "meta": json.loads(pack.meta),
    }


def _plain(value: Any) -> Any:
    """Records as JSON values."""
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def print_pack(pack: Pack, out: Console, *, images: bool) -> None:
    """A pack for people: what it is, its operators, and with `images` every image."""
    raw = sum(pack.blobs[image.code].raw_size for image in pack.images)
    packed = sum(len(blob.frame) for blob in pack.blobs.values())
    meta: Mapping[str, Any] = json.loads(pack.meta)
    head = [
        ("pack", f"{pack.family} for {pack.arch}"),
        ("tier", TIERS[pack.tier]),
        ("warp", f"{pack.warp_size} threads"),
        ("producer", pack.producer),
        *((name, str(value)) for name, value in sorted(meta.get("toolchain", {}).items())),
        ("profile", str(meta.get("profile", "unknown"))),
        ("images", f"{len(pack.images)}, {len(pack.blobs)} unique"),
        ("code", f"{size(raw)}, {size(packed)} packed"),
        ("id", pack.pack_id),
    ]
    width = max(len(name) for name, _ in head) + 2
    for name, text in head:
        out.print(f"{name:<{width}}{text}", soft_wrap=True)
    for operator in pack.operators:
        out.print()
        _print_operator(operator, out)
    if images:
        out.print()
        _print_images(pack, out)


def _print_operator(operator: OperatorRecord, out: Console) -> None:
    refused = sum(row.image is None for row in operator.rows)
    rows = f"{len(operator.rows)} dispatch rows"
    rows += f", {refused} of them known failures" if refused else ""
    out.print(f"operator {operator.name}, contract {operator.contract}: {rows}")
    tensors = [(t.name, t.rank, _dtype(t, operator), _notes(t)) for t in operator.tensors]
    out.print(table(("  tensor", ">rank", "dtype", "notes"), [(f"  {n}", *r) for n, *r in tensors]))
    columns = [
        (f"  {column.name}", _asks(column, operator), _values(operator, index))
        for index, column in enumerate(operator.columns)
    ]
    out.print(table(("  axis", "serves a call whose", "values"), columns))
    for row in operator.rows:
        if row.image is None:
            out.print(f"  refused: {row.values}: {row.reason}", soft_wrap=True)


def _dtype(tensor: TensorRecord, operator: OperatorRecord) -> str:
    if tensor.same_dtype_as is not None:
        return f"as {operator.tensors[tensor.same_dtype_as].name}"
    return _DTYPE_NAMES.get(tensor.dtype, "any of the axis")


def _notes(tensor: TensorRecord) -> str:
    names = ("optional", "contiguous_last", "written")
    return ", ".join(name.replace("_", " ") for name in names if getattr(tensor, name))


def _asks(column: ColumnRecord, operator: OperatorRecord) -> str:
    """In words: `size q[3] <= value`."""
    if column.reference is not None:
        other = operator.columns[column.reference].name
        return f"{other} is the tile's (0), or less (1)"
    return f"{_source(column.source)} {_SIGNS[column.mode.name]} value"


def _source(source: Source | None) -> str:
    if source is None:
        return "nothing"
    kind = source.kind.name.lower()
    dim = f"[{source.dim}]" if source.kind in (SourceKind.SIZE, SourceKind.STRIDE) else ""
    return f"{kind} {source.name}{dim}"


def _values(operator: OperatorRecord, index: int) -> str:
    source = operator.columns[index].source
    names = _DTYPE_NAMES if source is not None and source.kind is SourceKind.DTYPE else {}
    found = sorted({row.values[index] for row in operator.rows})
    return " ".join(names.get(value, str(value)) for value in found)


def _print_images(pack: Pack, out: Console) -> None:
    rows = [
        (
            image.facts.registers, image.facts.spills, image.facts.shared, image.facts.threads,
            size(pack.blobs[image.code].raw_size), size(len(pack.blobs[image.code].frame)),
            image.code[:12], image.name,
        )
        for image in pack.images
    ]  # fmt: skip
    headings = (
        ">registers", ">spills", ">shared", ">threads", ">raw", ">packed", "code", "image",
    )  # fmt: skip
    out.print(table(headings, rows))
