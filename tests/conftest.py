"""A kernel family small enough to compile in a moment, written where a test wants it, and a runtime
installed in a prefix of its own.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aotbuild

ROOT = Path(__file__).parents[1]

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


@pytest.fixture(scope="session")
def built_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime as it is built for publication, but for optimisation. Not to be changed."""
    build, prefix = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("built") / "prefix"
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or "cmake"
    options = ("-DAOTBUILD_STATIC_ZSTD=ON", "-DCMAKE_INSTALL_LIBDIR=lib")
    for command in (
        (cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(build), *options),
        (cmake, "--build", str(build)),
        (cmake, "--install", str(build), "--prefix", str(prefix), "--strip"),
    ):
        subprocess.run(command, check=True, capture_output=True)
    # The headers of no toolkit are here to compare with, so we say it in the build's place.
    manifest = prefix / "share" / "aotbuild" / "runtime.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    said = {
        "version": aotbuild.__version__, "abi": 0, "cpu": platform.machine(),
        "toolkits": ["cuda-13", "rocm-7.2"], "contracts": {"attention.forward": 1},
    }  # fmt: skip
    manifest.write_text(json.dumps(said))
    return prefix
