"""Typed records of a pack: what docs/pack-format.md stores, as Python sees it. No bytes here."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aotbuild.spec import Match, Source, SourceKind


class ArgType(enum.IntEnum):
    """Type of a physical kernel argument; names are Triton's, `pointer` for any `*type`."""

    pointer = 1
    i1 = 2
    i8 = 3
    i16 = 4
    i32 = 5
    i64 = 6
    u8 = 7
    u16 = 8
    u32 = 9
    u64 = 10
    fp16 = 11
    bf16 = 12
    fp32 = 13
    fp64 = 14
    descriptor = 15


class DescriptorForm(enum.IntEnum):
    """How a tensor descriptor is passed: a CUDA tensor map, or a TDM descriptor (gfx1250)."""

    TENSOR_MAP = 1
    TDM = 2


@dataclass(frozen=True)
class DescriptorRecord:
    tensor: str
    form: DescriptorForm
    element_type: int
    element_bits: int
    box: tuple[int, ...]
    swizzle: int = 0
    flags: int = 0
    warps: int = 0
    pad_interval: int = 0
    pad_amount: int = 0


@dataclass(frozen=True)
class ArgumentRecord:
    """One physical argument, in the kernel's order."""

    name: str
    type: ArgType
    source: Source
    constant: int = 0
    divisibility: int = 1
    range32: bool = False
    descriptor: DescriptorRecord | None = None


@dataclass(frozen=True)
class LaunchFacts:
    """What a driver must know to launch a code object. Sizes in bytes; scratch is per program."""

    symbol: str
    arguments: tuple[ArgumentRecord, ...]
    shared: int
    threads: int
    num_ctas: int = 1
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False
    global_scratch: int = 0
    global_scratch_align: int = 1
    profile_scratch: int = 0
    profile_scratch_align: int = 1
    registers: int = 0
    spills: int = 0


@dataclass(frozen=True)
class CompiledImage:
    """One compile's outcome: launch facts, the options that the compiler used, and the code."""

    facts: LaunchFacts
    options: Mapping[str, Any]
    code: bytes


@dataclass(frozen=True)
class FactorRecord:
    axis: int
    source: Source
    divisor: int


@dataclass(frozen=True)
class ImageRecord:
    """An image in a pack. `code` is the SHA-256 of its code object, `options` JSON text."""

    name: str
    facts: LaunchFacts
    factors: tuple[FactorRecord, ...]
    options: str
    code: str
    grid_cap: int = 0


@dataclass(frozen=True)
class TensorRecord:
    """A tensor argument; `dtype` is DLPack's code | bits << 8, 0 when only `same_dtype_as` (an
    index into the operator's tensors) binds it."""

    name: str
    rank: int
    dtype: int = 0
    same_dtype_as: int | None = None
    optional: bool = False
    contiguous_last: bool = False
    written: bool = False


@dataclass(frozen=True)
class ColumnRecord:
    name: str
    mode: Match
    source: Source | None
    role: int = 0
    reference: int | None = None


@dataclass(frozen=True)
class RowRecord:
    """A dispatch row: an image's name, or None and the reason why calls are refused."""

    values: tuple[int, ...]
    image: str | None
    reason: str = ""


@dataclass(frozen=True)
class OperatorRecord:
    name: str
    contract: int
    tensors: tuple[TensorRecord, ...]
    columns: tuple[ColumnRecord, ...]
    rows: tuple[RowRecord, ...]


@dataclass(frozen=True)
class Blob:
    """A code object as stored: a zstd frame, and the size and hash of what it holds."""

    sha256: str
    raw_size: int
    frame: bytes = field(repr=False)


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

    @property
    def contracts(self) -> dict[str, int]:
        """Contract version of each operator, by its full name: `attention.forward`."""
        return {f"{self.family}.{item.name}": item.contract for item in self.operators}


def facts_from_json(data: Mapping[str, Any]) -> LaunchFacts:
    """Inverse of `dataclasses.asdict` on LaunchFacts, after a trip through JSON."""
    fields = dict(data)
    fields["cluster"] = tuple(data["cluster"])
    fields["arguments"] = tuple(_argument_from_json(a) for a in data["arguments"])
    return LaunchFacts(**fields)


def _argument_from_json(data: Mapping[str, Any]) -> ArgumentRecord:
    fields = dict(data)
    source = data["source"]
    fields["type"] = ArgType(data["type"])
    fields["source"] = Source(SourceKind(source["kind"]), source["name"], source["dim"])
    if data["descriptor"] is not None:
        descriptor = dict(data["descriptor"])
        descriptor["form"] = DescriptorForm(descriptor["form"])
        descriptor["box"] = tuple(descriptor["box"])
        fields["descriptor"] = DescriptorRecord(**descriptor)
    return ArgumentRecord(**fields)
