"""Calls a kernel as the runtime does: arguments, constexprs and grid come from its spec."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle

from aotbuild.spec import Argument, Config, Key, Operator, Source, SourceKind


@dataclass(frozen=True)
class Call:
    """What a host passes: tensors (None for an optional one that is absent) and numbers."""

    tensors: Mapping[str, torch.Tensor | None]
    values: Mapping[str, int | float]


def number(source: Source, call: Call) -> int | float:
    """The value of a source, as docs/pack-format.md defines it."""
    if source.kind is SourceKind.VALUE:
        return call.values[source.name]
    tensor = call.tensors[source.name]
    if source.kind is SourceKind.PRESENT:
        return int(tensor is not None)
    if tensor is None:
        return 0
    if source.kind is SourceKind.SIZE:
        return tensor.shape[source.dim]
    if source.kind is SourceKind.STRIDE:
        return tensor.stride(source.dim)
    raise NotImplementedError(f"the harness does not know sources of kind {source.kind.name}")


def launch(kernels: Path, operator: Operator, call: Call, key: Key, config: Config) -> None:
    """Runs `operator` of the family in the folder `kernels`, in the interpreter."""
    kernel = load_kernel(kernels, operator.kernel)
    arguments: dict[str, Any] = {}
    for parameter in operator.parameters:
        if not isinstance(parameter, Argument):
            raise NotImplementedError(f"{parameter.name}: the harness knows plain arguments only")
        if parameter.source.kind is SourceKind.POINTER:
            arguments[parameter.name] = _pointee(operator, parameter.source.name, call)
        else:
            arguments[parameter.name] = number(parameter.source, call)
    for axis in operator.axes:
        if axis.constexpr:
            arguments[axis.constexpr] = key[axis.name]
    arguments |= {name: value for name, value in config.items() if name in kernel.arg_names}
    if list(arguments) != kernel.arg_names:
        raise AssertionError(f"spec gives {list(arguments)}, kernel takes {kernel.arg_names}")
    grid = grid_of(operator, call, config)
    if prod(grid) == 0:
        return
    with np.errstate(all="ignore"):  # infinities and NaNs are meant; the results are checked
        kernel[grid](**arguments)


def grid_of(operator: Operator, call: Call, config: Config) -> tuple[int, ...]:
    """Programs along each axis."""
    return tuple(
        prod(
            -(-int(number(factor.source, call)) // _divisor(factor.divisor, config))
            for factor in axis
        )
        for axis in operator.grid
    )


def _divisor(divisor: int | str, config: Config) -> int:
    return divisor if isinstance(divisor, int) else config[divisor]


def _pointee(operator: Operator, name: str, call: Call) -> torch.Tensor:
    tensor = call.tensors[name]
    if tensor is not None:
        return tensor
    return torch.empty(0, dtype=torch.float32)  # a null pointer


def load_kernel(folder: Path, name: str) -> InterpretedFunction[Any]:
    """The kernel as an interpreted function; its module is loaded once."""
    module_name = f"interpreted_{folder.name}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, folder / "kernel.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot import {folder / 'kernel.py'}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[module_name] = module
    kernel = getattr(module, name)
    if not (isinstance(kernel, InterpretedFunction) and isinstance(tl.cdiv, InterpretedFunction)):
        raise RuntimeError("triton was imported before TRITON_INTERPRET=1 was set")
    return kernel


@contextlib.contextmanager
def bf16_products() -> Iterator[None]:
    """Triton 3.9 keeps bf16 as uint16 in its interpreter, and multiplies those numbers in dot."""
    create_dot = InterpreterBuilder.create_dot

    def widened(
        self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, *rest: Any
    ) -> TensorHandle:
        if a.dtype.scalar == tl.bfloat16:
            a, b = (self.cast_impl(x, tl.float32) for x in (a, b))
        return create_dot(self, a, b, *rest)

    InterpreterBuilder.create_dot = widened
    try:
        yield
    finally:
        InterpreterBuilder.create_dot = create_dot
