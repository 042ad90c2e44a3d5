"""Kernel descriptions: what a kernel family's `spec.py` declares, and nothing that runs.

A family is a folder `kernels/<family>/` with `spec.py` (a `Family` named `FAMILY`), `kernel.py`
(the Triton source) and `tuned/<arch>.csv` (configs). Everything the runtime needs to call an
operator - which tensors and values, how a call maps to an image, arguments in order, the grid -
is declared here and travels in the pack, so a new kernel needs no new code in the driver and no
C++. This module imports neither triton nor torch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aotbuild.errors import SpecError
from aotbuild.target import Arch

#: One value per axis. Values are integers, except that of a dtype axis, which is a dtype name.
Key: TypeAlias = Mapping[str, int | str]
#: Tuning parameters: constexprs of the kernel (BLOCK_M ...) and compile options (num_warps ...).
Config: TypeAlias = Mapping[str, int]

#: Element types by Triton's name, with DLPack code and bits.
DTYPES: Mapping[str, tuple[int, int]] = {
    "fp16": (2, 16),
    "bf16": (4, 16),
    "fp32": (2, 32),
    "fp64": (2, 64),
    "i8": (0, 8),
    "i16": (0, 16),
    "i32": (0, 32),
    "i64": (0, 64),
    "u8": (1, 8),
}


def dtype_bytes(name: str) -> int:
    """Bytes of one element of dtype `name`."""
    return DTYPES[name][1] // 8


def dtype_value(name: str) -> int:
    """The number that stands for a dtype in a pack: DLPack's code | bits << 8."""
    code, bits = DTYPES[name]
    return code | bits << 8


class SourceKind(enum.IntEnum):
    """Where a number comes from when an operator is called (docs/pack-format.md, Source)."""

    CONSTANT = 0
    POINTER = 1
    SIZE = 2
    STRIDE = 3
    VALUE = 4
    DTYPE = 5
    DESCRIPTOR = 6
    PRESENT = 7
    GLOBAL_SCRATCH = 8
    PROFILE_SCRATCH = 9


@dataclass(frozen=True)
class Source:
    kind: SourceKind
    name: str = ""
    dim: int = 0


def pointer(tensor: str) -> Source:
    return Source(SourceKind.POINTER, tensor)


def size(tensor: str, dim: int) -> Source:
    return Source(SourceKind.SIZE, tensor, dim)


def stride(tensor: str, dim: int) -> Source:
    """Stride of `dim` in elements."""
    return Source(SourceKind.STRIDE, tensor, dim)


def value(name: str) -> Source:
    """A number that the host passes under `name`."""
    return Source(SourceKind.VALUE, name)


def dtype_of(tensor: str) -> Source:
    return Source(SourceKind.DTYPE, tensor)


def present(tensor: str) -> Source:
    """1 when the optional tensor is given, else 0."""
    return Source(SourceKind.PRESENT, tensor)


@dataclass(frozen=True)
class Tensor:
    """A tensor argument. `dtype` is a dtype name or the name of a dtype axis."""

    name: str
    dims: tuple[str, ...]
    dtype: str
    optional: bool = False
    contiguous_last: bool = True
    written: bool = False

    @property
    def rank(self) -> int:
        return len(self.dims)


class Match(enum.IntEnum):
    """When a row's value serves a call's (docs/pack-format.md, columns)."""

    EQUAL = 0
    AT_LEAST = 1
    AT_MOST = 2
    SLACK = 3


@dataclass(frozen=True)
class Axis:
    """A compile-time choice decided by the call.

    `values` are in order of preference. `constexpr` names the kernel's constexpr parameter that
    gets the value, if any. A SLACK axis has values (0, 1), no source, and names in `of` the
    axis whose tile may be larger than the call's size when it is 1.
    """

    name: str
    values: tuple[int | str, ...]
    match: Match
    source: Source | None = None
    of: str = ""
    constexpr: str = ""


@dataclass(frozen=True)
class Argument:
    """A kernel parameter that the runtime fills. `type` is a Triton scalar type, or "*" for a
    pointer to the source tensor's elements."""

    name: str
    type: str
    source: Source


@dataclass(frozen=True)
class Descriptor:
    """A kernel parameter that is a tensor descriptor of `tensor` with `block`, one entry per
    dimension: an int, or the name of a config entry or axis."""

    name: str
    tensor: str
    block: tuple[int | str, ...]


@dataclass(frozen=True)
class Tuple:
    """A kernel parameter that is a Python tuple; flattened in the kernel's argument list."""

    name: str
    items: tuple[Argument, ...]


Parameter: TypeAlias = Argument | Descriptor | Tuple


@dataclass(frozen=True)
class Promise:
    """Facts about a call's arguments that an image may rely on. The runtime checks them for every
    call, and takes the next image when they do not hold.

    It speaks of the tensors in `tensors` only. `align`: their pointers, and their strides before
    the last, are multiples of this many bytes; so are the parameters named in `sizes` times their
    tensor's element size. 1 promises nothing. `range32`: each spans less than 2 GiB from its
    pointer (AMD's buffer instructions; ignored for NVIDIA).
    """

    name: str
    tensors: tuple[str, ...] = ()
    align: int = 1
    range32: bool = False
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Factor:
    """ceil(source / divisor); `divisor` is an int or the name of a config entry."""

    source: Source
    divisor: int | str = 1


def _always(arch: Arch, key: Key, promise: Promise) -> bool:
    return True


@dataclass(frozen=True)
class Operator:
    """What a host calls, and the kernel that computes it.

    `kernel` is the function's name in the family's kernel.py. `config` names the tuning
    parameters: those that are parameters of the kernel are its constexprs, the others compile
    options. `candidates(arch, key)` lists the configs that tuning tries. `valid(arch, key,
    promise)` leaves out combinations that are not built. `promises` are in order of preference.
    `smoke(arch, key, promise)` picks what the smoke profile builds. `constants` are further
    constexprs with fixed values, `options` further compile options. `grid_cap`, if not empty,
    names the config entry that bounds grid.x to that many programs per multiprocessor.
    """

    name: str
    contract: int
    kernel: str
    tensors: tuple[Tensor, ...]
    axes: tuple[Axis, ...]
    parameters: tuple[Parameter, ...]
    grid: tuple[tuple[Factor, ...], ...]
    config: tuple[str, ...]
    candidates: Callable[[Arch, Key], tuple[Config, ...]]
    promises: tuple[Promise, ...] = (Promise("any"),)
    valid: Callable[[Arch, Key, Promise], bool] = _always
    smoke: Callable[[Arch, Key, Promise], bool] = _always
    constants: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, int | bool | str] = field(default_factory=dict)
    grid_cap: str = ""

    def tensor(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise SpecError(f"operator {self.name!r} has no tensor {name!r}")

    def axis(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise SpecError(f"operator {self.name!r} has no axis {name!r}")

    def promise(self, name: str) -> Promise:
        for promise in self.promises:
            if promise.name == name:
                return promise
        raise SpecError(f"operator {self.name!r} has no promise {name!r}")

    def element(self, tensor: str, key: Key) -> str:
        """dtype name of a tensor's elements for `key`."""
        dtype = self.tensor(tensor).dtype
        return dtype if dtype in DTYPES else str(key[dtype])


@dataclass(frozen=True)
class Family:
    """Kernels that ship together in one pack per arch."""

    name: str
    operators: tuple[Operator, ...]

    def operator(self, name: str) -> Operator:
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise SpecError(f"family {self.name!r} has no operator {name!r}")
