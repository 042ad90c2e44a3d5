"""A kernel family small enough to compile in a moment, written where a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SPEC = """\
from aotbuild.spec import (
    Argument, Axis, Factor, Family, Match, Operator, Tensor, dtype_of, pointer, size,
)

DOUBLE = Operator(
    name="double",
    contract=1,
    kernel="double",
    tensors=(Tensor("x", ("n",), "dtype"), Tensor("out", ("n",), "dtype", written=True)),
    axes=(Axis("dtype", {dtypes!r}, Match.EQUAL, dtype_of("x")),),
    parameters=(
        Argument("x", "*", pointer("x")),
        Argument("out", "*", pointer("out")),
        Argument("n", "i32", size("x", 0)),
    ),
    grid=((Factor(size("x", 0), "BLOCK"),),),
    config=("BLOCK", "num_warps"),
    candidates=lambda arch, key: ({{"BLOCK": 64, "num_warps": 1}},),
)
FAMILY = Family({name!r}, (DOUBLE,))
"""

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
"""

TABLE = "operator,dtype,BLOCK,num_warps,provenance\ndouble,*,{block},1,test\n"


@pytest.fixture
def write_family(tmp_path: Path) -> Callable[..., Path]:
    """Writes a family's folder, and gives the folder that it is in."""

    def write(
        name: str = "tiny",
        *,
        kernel: str = KERNEL,
        dtypes: tuple[str, ...] = ("fp16", "fp32"),
        block: int = 128,
        arches: tuple[str, ...] = ("gfx942", "sm_90"),
        folder: str = "kernels",
    ) -> Path:
        family = tmp_path / folder / name
        (family / "tuned").mkdir(parents=True, exist_ok=True)
        (family / "spec.py").write_text(SPEC.format(name=name, dtypes=dtypes), "utf-8")
        (family / "kernel.py").write_text(kernel, "utf-8")
        for arch in arches:
            (family / "tuned" / f"{arch}.csv").write_text(TABLE.format(block=block), "utf-8")
        return tmp_path / folder

    return write
