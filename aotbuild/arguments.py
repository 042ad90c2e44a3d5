"""From a kernel description to the compiler's view of the parameters, and to the launch's.

`bind` gives Triton's signature, constants and hints for a variant; `physical` gives the argument
list that the code object takes (Triton 3.9's launch contract: tuples flattened, constants
dropped, descriptors expanded in place, two scratch pointers always last). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aotbuild.errors import SpecError
from aotbuild.plan import Variant
from aotbuild.records import ArgType, ArgumentRecord, DescriptorForm, DescriptorRecord
from aotbuild.spec import (
    Argument,
    Descriptor,
    Key,
    Operator,
    Parameter,
    Promise,
    Source,
    SourceKind,
    Tuple,
    dtype_bytes,
    pointer,
    size,
    stride,
)

_WIDTHS = {
    ArgType.pointer: 8, ArgType.i1: 1, ArgType.i8: 1, ArgType.u8: 1, ArgType.i16: 2,
    ArgType.u16: 2, ArgType.fp16: 2, ArgType.bf16: 2, ArgType.i32: 4, ArgType.u32: 4,
    ArgType.fp32: 4, ArgType.i64: 8, ArgType.u64: 8, ArgType.fp64: 8,
}  # fmt: skip
_SMALL_TDM_RANK = 2

Signature: TypeAlias = "str | tuple[str, ...]"
Path = tuple[int, ...]


@dataclass(frozen=True)
class Bound:
    """What the compiler is told: types by parameter name, constants by name, hints by path."""

    signature: Mapping[str, Signature]
    constants: Mapping[str, int | str]
    hints: Mapping[Path, list[list[Any]]]


@dataclass(frozen=True)
class _Hint:
    divisibility: int = 1
    range32: bool = False


def compile_options(operator: Operator, variant: Variant) -> dict[str, int]:
    """The config entries that are options of the compiler: lower-case names but the grid cap."""
    return {
        name: value
        for name, value in variant.config
        if not _is_constexpr(name) and name != operator.grid_cap
    }


def _is_constexpr(name: str) -> bool:
    return name.isupper()


def constants(operator: Operator, variant: Variant) -> dict[str, int | str]:
    """The kernel's constexpr parameters by name: axes, upper-case config entries, constants."""
    key = dict(variant.key)
    values: dict[str, int | str] = {a.constexpr: key[a.name] for a in operator.axes if a.constexpr}
    values.update((name, value) for name, value in variant.config if _is_constexpr(name))
    values.update(operator.constants)
    return values


def bind(operator: Operator, variant: Variant, names: Sequence[str]) -> Bound:
    """Signature, constants and hints for a kernel whose parameters are `names`, in order.

    Raises SpecError when the description and the kernel's parameters differ.
    """
    fixed = constants(operator, variant)
    declared = [parameter.name for parameter in operator.parameters]
    runtime = [name for name in names if name not in fixed]
    if runtime != declared or set(names) != set(declared) | set(fixed):
        raise SpecError(
            f"kernel {operator.kernel} takes ({', '.join(names)}); its description declares "
            f"({', '.join(declared)}) in order, and the constants {sorted(fixed)}"
        )
    key, promise = dict(variant.key), operator.promise(variant.promise)
    by_name = {parameter.name: parameter for parameter in operator.parameters}
    signature: dict[str, Signature] = {}
    hints: dict[Path, list[list[Any]]] = {}
    for index, name in enumerate(names):
        if name in fixed:
            signature[name] = "constexpr"
            continue
        parameter = by_name[name]
        signature[name] = _type(operator, parameter, variant)
        for path, argument in _scalars(parameter, (index,)):
            hint = _hint(operator, argument, key, promise, variant.arch.vendor)
            found: list[list[Any]] = []
            if hint.divisibility > 1:
                found.append(["tt.divisibility", hint.divisibility])
            if hint.range32:
                found.append(["tt.pointer_range", 32])
            if found:
                hints[path] = found
    return Bound(signature, fixed, hints)


def _type(operator: Operator, parameter: Parameter, variant: Variant) -> Signature:
    key = dict(variant.key)
    if isinstance(parameter, Tuple):
        return tuple(_scalar_type(operator, item, key) for item in parameter.items)
    if isinstance(parameter, Descriptor):
        element = operator.element(parameter.tensor, key)
        block = ",".join(str(x) for x in _block(operator, parameter, variant))
        return f"tensordesc<{element}[{block}]>"
    return _scalar_type(operator, parameter, key)


def _scalar_type(operator: Operator, argument: Argument, key: Key) -> str:
    if argument.type == "*":
        return "*" + operator.element(argument.source.name, key)
    return argument.type


def _block(operator: Operator, parameter: Descriptor, variant: Variant) -> tuple[int, ...]:
    """The descriptor's block with names replaced by the variant's values."""
    tensor = operator.tensor(parameter.tensor)
    if len(parameter.block) != tensor.rank:
        raise SpecError(
            f"descriptor {parameter.name}: block has {len(parameter.block)} entries, tensor "
            f"{tensor.name} has rank {tensor.rank}"
        )
    known: dict[str, Any] = {**dict(variant.key), **dict(variant.config), **operator.constants}
    return tuple(x if isinstance(x, int) else int(known[x]) for x in parameter.block)


def _scalars(parameter: Parameter, path: Path) -> Iterator[tuple[Path, Argument]]:
    if isinstance(parameter, Argument):
        yield path, parameter
    elif isinstance(parameter, Tuple):
        for i, item in enumerate(parameter.items):
            yield (*path, i), item


def _hint(operator: Operator, argument: Argument, key: Key, promise: Promise, vendor: str) -> _Hint:
    """What a promise says of one scalar parameter."""
    source = argument.source
    if source.name not in promise.tensors:
        return _Hint()
    tensor = operator.tensor(source.name)
    units = max(1, promise.align // dtype_bytes(operator.element(source.name, key)))
    if source.kind is SourceKind.POINTER:
        return _Hint(promise.align, promise.range32 and vendor == "hip")
    if source.kind is SourceKind.STRIDE and source.dim < tensor.rank - 1:
        return _Hint(units)
    if source.kind is SourceKind.SIZE and argument.name in promise.sizes:
        return _Hint(units)
    return _Hint()


def physical(
    operator: Operator, variant: Variant, bound: Bound, metadata: Mapping[str, Any]
) -> tuple[ArgumentRecord, ...]:
    """The arguments that the code object takes, in order, for the compiler's `metadata`."""
    key, promise = dict(variant.key), operator.promise(variant.promise)
    described = iter(metadata.get("tensordesc_meta") or ())
    records: list[ArgumentRecord] = []
    for parameter in operator.parameters:
        if isinstance(parameter, Descriptor):
            facts = next(described, None)
            records += _expanded(operator, parameter, variant, facts, metadata)
            continue
        for _, argument in _scalars(parameter, ()):
            hint = _hint(operator, argument, key, promise, variant.arch.vendor)
            kind = ArgType.pointer if argument.type == "*" else ArgType[argument.type]
            records.append(
                ArgumentRecord(
                    argument.name,
                    kind,
                    argument.source,
                    divisibility=hint.divisibility,
                    range32=hint.range32,
                )
            )
    for name, kind_of in (
        ("global_scratch", SourceKind.GLOBAL_SCRATCH),
        ("profile_scratch", SourceKind.PROFILE_SCRATCH),
    ):
        records.append(ArgumentRecord(name, ArgType.pointer, Source(kind_of)))
    return tuple(records)


def width(record: ArgumentRecord) -> int:
    """Size in bytes of one physical argument."""
    if record.descriptor is None:
        return _WIDTHS[record.type]
    if record.descriptor.form is DescriptorForm.TENSOR_MAP:
        return 128
    return 48 if len(record.descriptor.box) <= _SMALL_TDM_RANK else 80


def _expanded(
    operator: Operator,
    parameter: Descriptor,
    variant: Variant,
    facts: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
) -> Iterator[ArgumentRecord]:
    """A descriptor's arguments: a hardware descriptor where the arch has one, else the base,
    shape, strides and two flags; then the shape and strides."""
    tensor, rank = parameter.tensor, operator.tensor(parameter.tensor).rank
    dims, name = range(rank), parameter.name

    def ints(what: str, kind: ArgType, make: Any) -> Iterator[ArgumentRecord]:
        return (ArgumentRecord(f"{name}.{what}{i}", kind, make(tensor, i)) for i in dims)

    if facts is None:
        yield ArgumentRecord(name, ArgType.pointer, pointer(tensor))
        yield from ints("shape", ArgType.i64, size)
        yield from ints("stride", ArgType.i64, stride)
        for flag in ("nan_fill", "round_to_tf32"):
            yield ArgumentRecord(f"{name}.{flag}", ArgType.i1, Source(SourceKind.CONSTANT))
    else:
        record = _descriptor(tensor, variant, facts, metadata)
        yield ArgumentRecord(
            name, ArgType.descriptor, Source(SourceKind.DESCRIPTOR), descriptor=record
        )
    yield from ints("shape", ArgType.i32, size)
    yield from ints("stride", ArgType.i64, stride)


def _descriptor(
    tensor: str, variant: Variant, facts: Mapping[str, Any], metadata: Mapping[str, Any]
) -> DescriptorRecord:
    box = tuple(facts["block_size"])
    if variant.arch.vendor == "hip":
        pairs = facts.get("interval_padding_pairs") or [(0, 0)]
        if len(pairs) != 1:
            raise SpecError(f"descriptor of {tensor}: {len(pairs)} padding intervals, expected 1")
        return DescriptorRecord(
            tensor, DescriptorForm.TDM, 0, facts["elem_bits"], box,
            warps=metadata["num_warps"], pad_interval=pairs[0][0], pad_amount=pairs[0][1],
        )  # fmt: skip
    if facts.get("is_im2col"):
        raise SpecError(f"descriptor of {tensor}: im2col descriptors are not supported")
    return DescriptorRecord(
        tensor, DescriptorForm.TENSOR_MAP, facts["elem_type"], 8 * facts["elem_size"], box,
        swizzle=facts["swizzle"], flags=int(bool(facts["fp4_padded"])),
    )  # fmt: skip
