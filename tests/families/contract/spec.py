"""A family for tests: operators that together use all of Triton's launch contract."""

from __future__ import annotations

from aotbuild.spec import (
    Argument,
    Axis,
    Config,
    Descriptor,
    Factor,
    Family,
    Key,
    Match,
    Operator,
    Tensor,
    Tuple,
    dtype_of,
    pointer,
    size,
    stride,
    value,
)
from aotbuild.target import Arch


def _one(arch: Arch, key: Key) -> tuple[Config, ...]:
    return ()


_DTYPE = Axis("dtype", ("fp16", "fp32"), Match.EQUAL, dtype_of("x"))
_MATRICES = (
    Tensor("x", ("row", "column"), "dtype"),
    Tensor("out", ("row", "column"), "dtype", written=True),
)

SCALARS = Operator(
    name="scalars",
    contract=1,
    kernel="scalars",
    tensors=(Tensor("out", ("item",), "fp64", written=True),),
    axes=(Axis("mode", (0,), Match.EQUAL, value("mode")),),
    parameters=(
        Argument("out", "*", pointer("out")),
        Argument("flag", "i1", value("flag")),
        Argument("small", "i8", value("small")),
        Argument("big", "i64", value("big")),
        Argument("half", "fp16", value("half")),
        Argument("single", "fp32", value("single")),
        Argument("double", "fp64", value("double")),
        Tuple(
            "pair",
            (Argument("first", "i32", value("first")), Argument("second", "i64", value("second"))),
        ),
    ),
    grid=(),
    config=("BLOCK", "num_warps"),
    candidates=_one,
)

COPY_TILES = Operator(
    name="copy_tiles",
    contract=1,
    kernel="copy_tiles",
    tensors=_MATRICES,
    axes=(_DTYPE,),
    parameters=(
        Descriptor("x", "x", ("ROWS", "COLUMNS")),
        Argument("out", "*", pointer("out")),
        Argument("stride_outr", "i64", stride("out", 0)),
    ),
    grid=((Factor(size("x", 0), "ROWS"),), (Factor(size("x", 1), "COLUMNS"),)),
    config=("ROWS", "COLUMNS", "num_warps"),
    candidates=_one,
)

SCRATCH_COPY = Operator(
    name="scratch_copy",
    contract=1,
    kernel="scratch_copy",
    tensors=_MATRICES,
    axes=(_DTYPE,),
    parameters=(
        Argument("x", "*", pointer("x")),
        Argument("out", "*", pointer("out")),
        Argument("rows", "i32", size("x", 0)),
        Argument("columns", "i32", size("x", 1)),
    ),
    grid=((Factor(size("x", 0), "ROWS"),),),
    config=("ROWS", "COLUMNS", "num_warps"),
    candidates=_one,
)

PERSISTENT_SCALE = Operator(
    name="persistent_scale",
    contract=1,
    kernel="persistent_scale",
    tensors=(
        Tensor("x", ("item",), "fp32"),
        Tensor("out", ("item",), "fp32", written=True),
    ),
    axes=(Axis("length", (4096, 2**62), Match.AT_LEAST, size("x", 0)),),
    parameters=(
        Argument("x", "*", pointer("x")),
        Argument("out", "*", pointer("out")),
        Argument("n", "i32", size("x", 0)),
        Argument("factor", "fp32", value("factor")),
    ),
    grid=((Factor(size("x", 0), "BLOCK"),),),
    config=("BLOCK", "num_warps", "per_multiprocessor"),
    candidates=_one,
    options={"launch_cooperative_grid": True},
    grid_cap="per_multiprocessor",
)

FAMILY = Family("contract", (SCALARS, COPY_TILES, SCRATCH_COPY, PERSISTENT_SCALE))
