"""Attention: description of its operators (the contract is in docs/attention.md)."""

from __future__ import annotations

import itertools
from dataclasses import replace

from aotbuild.spec import (
    Argument,
    Axis,
    Config,
    Factor,
    Family,
    Key,
    Match,
    Operator,
    Promise,
    Tensor,
    dtype_of,
    pointer,
    present,
    size,
    stride,
    value,
)
from aotbuild.target import Arch


def _promises(*operands: str) -> tuple[Promise, ...]:
    """What images rely on, in order of preference."""
    return (
        Promise("aligned", operands, align=16, range32=True, sizes=("head_dim",)),
        Promise("wide", operands, align=16, sizes=("head_dim",)),
        Promise("any"),
    )


def _valid(arch: Arch, key: Key, promise: Promise) -> bool:
    """Combinations worth an image; the general ones left in serve every call."""
    if key.get("tf32") and not (key["dtype"] == "fp32" and arch.tf32):
        return False
    if promise.name == "wide":  # differs from aligned only in tt.pointer_range, an AMD matter
        return arch.vendor == "hip" and key["padded"] == 1
    return promise.name == "aligned" or key["padded"] == 1


def _smoke(arch: Arch, key: Key, promise: Promise) -> bool:
    """The most general image of each dtype and head_dim class: serves every call, unhurried."""
    general = key["padded"] == 1 and key.get("windowed", 1) == 1 and key.get("tf32", 0) == 0
    return promise.name == "any" and general


def _candidates(arch: Arch, key: Key) -> tuple[Config, ...]:
    """Tiles whose operands and accumulator can fit the arch's registers and shared memory."""
    row_bytes = int(key["head_dim"]) * (2 if key["dtype"] == "fp32" else 1)
    cuda = arch.vendor == "cuda"
    tiles = (16, 32, 64, 128)
    return tuple(
        {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "num_warps": num_warps,
            "num_stages": num_stages,
            "waves_per_eu": waves_per_eu,
        }
        for block_m, block_n in itertools.product(tiles, tiles)
        if block_n <= block_m and block_m * row_bytes <= 128 * 256
        for num_warps in ((4, 8) if block_m == 128 else (4,))
        for num_stages in ((1, 2, 3) if cuda else (1, 2))
        for waves_per_eu in ((0,) if cuda else (0, 2))
    )


def _delta_candidates(arch: Arch, key: Key) -> tuple[Config, ...]:
    return tuple({"BLOCK_M": block_m, "num_warps": 4} for block_m in (16, 32, 64, 128))


_DTYPE = ("fp16", "bf16", "fp32")
_HEAD_DIM = (16, 32, 64, 128, 256)
_CONFIG = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "waves_per_eu")


def _head_dim_axis(tensor: str) -> Axis:
    return Axis("head_dim", _HEAD_DIM, Match.AT_LEAST, size(tensor, 3), constexpr="HEAD_DIM")


_PADDED = Axis("padded", (0, 1), Match.SLACK, of="head_dim", constexpr="PADDED")
_AXES = (
    Axis("dtype", _DTYPE, Match.EQUAL, dtype_of("q")),
    _head_dim_axis("q"),
    Axis("tf32", (1, 0), Match.AT_MOST, value("tf32"), constexpr="TF32"),
    _PADDED,
    Axis("windowed", (0, 1), Match.AT_LEAST, value("windowed"), constexpr="WINDOWED"),
)
_SCALE_AND_WINDOW = (
    Argument("scale", "fp32", value("scale")),
    # query i sees key j when window_low <= j - i <= window_high
    Argument("window_low", "i32", value("window_low")),
    Argument("window_high", "i32", value("window_high")),
)


def _operand(name: str, *, written: bool = False) -> Tensor:
    return Tensor(name, ("batch", "head", "seq", "dim"), "dtype", written=written)


def _pointers(*tensors: str) -> tuple[Argument, ...]:
    return tuple(Argument(tensor, "*", pointer(tensor)) for tensor in tensors)


def _strides(*tensors: str, dims: str = "bhs") -> tuple[Argument, ...]:
    return tuple(
        Argument(f"stride_{tensor}{letter}", "i64", stride(tensor, dim))
        for tensor in tensors
        for dim, letter in enumerate(dims)
    )


def _rows(tensor: str, tile: str) -> tuple[tuple[Factor, ...], ...]:
    """A program for each tile of a head's rows."""
    return ((Factor(size(tensor, 2), tile), Factor(size(tensor, 1)), Factor(size(tensor, 0))),)


_LSE = Tensor("lse", ("batch", "head", "seq"), "fp32")

FORWARD = Operator(
    name="forward",
    contract=1,
    kernel="attention_forward",
    tensors=(
        *map(_operand, ("q", "k", "v")),
        _operand("out", written=True),
        replace(_LSE, optional=True, written=True),
    ),
    axes=_AXES,
    parameters=(
        *_pointers("q", "k", "v", "out", "lse"),
        *_strides("q", "k", "v", "out"),
        *_strides("lse", dims="bh"),
        Argument("batch", "i32", size("q", 0)),
        Argument("heads_q", "i32", size("q", 1)),
        Argument("heads_k", "i32", size("k", 1)),
        Argument("seqlen_q", "i32", size("q", 2)),
        Argument("seqlen_k", "i32", size("k", 2)),
        Argument("head_dim", "i32", size("q", 3)),
        Argument("has_lse", "i32", present("lse")),
        *_SCALE_AND_WINDOW,
    ),
    grid=_rows("q", "BLOCK_M"),
    config=_CONFIG,
    candidates=_candidates,
    promises=_promises("q", "k", "v", "out"),
    valid=_valid,
    smoke=_smoke,
)

# delta (B, Hq, Sq) float32 = sum over D of out * dout, for the two operators below.
BACKWARD_DELTA = Operator(
    name="backward_delta",
    contract=1,
    kernel="attention_backward_delta",
    tensors=(_operand("out"), _operand("dout"), replace(_LSE, name="delta", written=True)),
    axes=(
        Axis("dtype", _DTYPE, Match.EQUAL, dtype_of("out")),
        _head_dim_axis("out"),
        _PADDED,
    ),
    parameters=(
        *_pointers("out", "dout", "delta"),
        *_strides("out", "dout"),
        *_strides("delta", dims="bh"),
        Argument("heads_q", "i32", size("out", 1)),
        Argument("seqlen_q", "i32", size("out", 2)),
        Argument("head_dim", "i32", size("out", 3)),
    ),
    grid=_rows("out", "BLOCK_M"),
    config=("BLOCK_M", "num_warps"),
    candidates=_delta_candidates,
    promises=_promises("out", "dout"),
    valid=_valid,
    smoke=_smoke,
)


def _gradients(name: str, written: tuple[str, ...], owner: str, tile: str) -> Operator:
    """The gradients `written`, each program those of one tile of rows of `owner`."""
    return Operator(
        name=name,
        contract=1,
        kernel=f"attention_{name}",
        tensors=(
            *map(_operand, ("q", "k", "v", "dout")),
            _LSE,
            replace(_LSE, name="delta"),
            *(_operand(tensor, written=True) for tensor in written),
        ),
        axes=_AXES,
        parameters=(
            *_pointers("q", "k", "v", "dout", "lse", "delta", *written),
            *_strides("q", "k", "v", "dout"),
            *_strides("lse", "delta", dims="bh"),
            *_strides(*written),
            Argument("heads_q", "i32", size("q", 1)),
            Argument("heads_k", "i32", size("k", 1)),
            Argument("seqlen_q", "i32", size("q", 2)),
            Argument("seqlen_k", "i32", size("k", 2)),
            Argument("head_dim", "i32", size("q", 3)),
            *_SCALE_AND_WINDOW,
        ),
        grid=_rows(owner, tile),
        config=_CONFIG,
        candidates=_candidates,
        promises=_promises("q", "k", "v", "dout", *written),
        valid=_valid,
        smoke=_smoke,
    )


BACKWARD_DKDV = _gradients("backward_dkdv", ("dk", "dv"), owner="k", tile="BLOCK_N")
BACKWARD_DQ = _gradients("backward_dq", ("dq",), owner="q", tile="BLOCK_M")

FAMILY = Family("attention", (BACKWARD_DELTA, BACKWARD_DKDV, BACKWARD_DQ, FORWARD))
