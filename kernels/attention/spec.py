"""Attention: description of its operators (the contract is in docs/attention.md)."""

from __future__ import annotations

import itertools

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

_OPERANDS = ("q", "k", "v", "out")
ALIGNED = Promise("aligned", _OPERANDS, align=16, range32=True, sizes=("head_dim",))
WIDE = Promise("wide", _OPERANDS, align=16, sizes=("head_dim",))
ANY = Promise("any")


def _valid(arch: Arch, key: Key, promise: Promise) -> bool:
    """Combinations worth an image; the general ones left in serve every call."""
    if key["tf32"] and not (key["dtype"] == "fp32" and arch.tf32):
        return False
    if promise is WIDE:  # differs from ALIGNED only in tt.pointer_range, an AMD matter
        return arch.vendor == "hip" and key["padded"] == 1
    if promise is ANY:
        return key["padded"] == 1
    return True


def _smoke(arch: Arch, key: Key, promise: Promise) -> bool:
    """The most general image of each dtype and head_dim class: serves every call, unhurried."""
    return promise is ANY and key["padded"] == 1 and key["windowed"] == 1 and key["tf32"] == 0


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


FORWARD = Operator(
    name="forward",
    contract=1,
    kernel="attention_forward",
    tensors=(
        Tensor("q", ("batch", "head", "seq", "dim"), "dtype"),
        Tensor("k", ("batch", "head", "seq", "dim"), "dtype"),
        Tensor("v", ("batch", "head", "seq", "dim"), "dtype"),
        Tensor("out", ("batch", "head", "seq", "dim"), "dtype", written=True),
        Tensor("lse", ("batch", "head", "seq"), "fp32", optional=True, written=True),
    ),
    axes=(
        Axis("dtype", ("fp16", "bf16", "fp32"), Match.EQUAL, dtype_of("q")),
        Axis(
            "head_dim", (16, 32, 64, 128, 256), Match.AT_LEAST, size("q", 3), constexpr="HEAD_DIM"
        ),
        Axis("tf32", (1, 0), Match.AT_MOST, value("tf32"), constexpr="TF32"),
        Axis("padded", (0, 1), Match.SLACK, of="head_dim", constexpr="PADDED"),
        Axis("windowed", (0, 1), Match.AT_LEAST, value("windowed"), constexpr="WINDOWED"),
    ),
    parameters=(
        Argument("q", "*", pointer("q")),
        Argument("k", "*", pointer("k")),
        Argument("v", "*", pointer("v")),
        Argument("out", "*", pointer("out")),
        Argument("lse", "*", pointer("lse")),
        *(
            Argument(f"stride_{tensor}{letter}", "i64", stride(tensor, dim))
            for tensor in ("q", "k", "v", "out")
            for dim, letter in enumerate("bhs")
        ),
        Argument("stride_lseb", "i64", stride("lse", 0)),
        Argument("stride_lseh", "i64", stride("lse", 1)),
        Argument("batch", "i32", size("q", 0)),
        Argument("heads_q", "i32", size("q", 1)),
        Argument("heads_k", "i32", size("k", 1)),
        Argument("seqlen_q", "i32", size("q", 2)),
        Argument("seqlen_k", "i32", size("k", 2)),
        Argument("head_dim", "i32", size("q", 3)),
        Argument("has_lse", "i32", present("lse")),
        Argument("scale", "fp32", value("scale")),
        # query i sees key j when window_low <= j - i <= window_high
        Argument("window_low", "i32", value("window_low")),
        Argument("window_high", "i32", value("window_high")),
    ),
    grid=((Factor(size("q", 2), "BLOCK_M"), Factor(size("q", 1)), Factor(size("q", 0))),),
    config=("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "waves_per_eu"),
    candidates=_candidates,
    promises=(ALIGNED, WIDE, ANY),
    valid=_valid,
    smoke=_smoke,
)

FAMILY = Family("attention", (FORWARD,))
