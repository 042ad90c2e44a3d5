"""The attention kernel, interpreted, against kernels/attention/reference.py in float64."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import harness
import numpy as np
import pytest
import torch

from aotbuild.families import builtin_families, load_family

FOLDER = builtin_families() / "attention"
FORWARD = load_family(FOLDER).family.operator("forward")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
TOLERANCE = {"fp16": 1e-3, "bf16": 8e-3, "fp32": 1e-5}
INT32_MAX = 2**31 - 1
UPPER_LEFT, LOWER_RIGHT = 0, 1


def _load_reference(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("attention_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _load_reference(FOLDER / "reference.py")


@dataclass(frozen=True)
class Case:
    dtype: str = "fp16"
    batch: int = 1
    heads_q: int = 2
    heads_k: int = 2
    seqlen_q: int = 40
    seqlen_k: int = 50
    head_dim: int = 16
    left: int | None = None
    right: int | None = None
    align: int = UPPER_LEFT
    scale: float = 0.31
    block_m: int = 32
    block_n: int = 16

    @property
    def windowed(self) -> int:
        return int(self.left is not None or self.right is not None)


Tensors = dict[str, "torch.Tensor | None"]


def make_tensors(case: Case, spread: float = 1.0) -> Tensors:
    """Random inputs, and outputs full of NaN."""
    generator = torch.Generator().manual_seed(case.seqlen_q * 1009 + case.head_dim)
    dtype = DTYPES[case.dtype]
    shape_q = (case.batch, case.heads_q, case.seqlen_q, case.head_dim)
    shape_k = (case.batch, case.heads_k, case.seqlen_k, case.head_dim)
    return {
        "q": (torch.randn(shape_q, generator=generator) * spread).to(dtype),
        "k": (torch.randn(shape_k, generator=generator) * spread).to(dtype),
        "v": torch.randn(shape_k, generator=generator).to(dtype),
        "out": torch.full(shape_q, torch.nan, dtype=dtype),
        "lse": torch.full(shape_q[:3], torch.nan),
    }


def window_numbers(case: Case) -> dict[str, int]:
    """The bounds of j - i that the host computes, brought into 32 bits."""
    shift = case.seqlen_k - case.seqlen_q if case.align == LOWER_RIGHT else 0
    low = -INT32_MAX - 1 if case.left is None else shift - case.left
    high = INT32_MAX if case.right is None else shift + case.right
    clamp = (-INT32_MAX - 1, INT32_MAX)
    return {"window_low": max(low, clamp[0]), "window_high": min(high, clamp[1])}


def run(
    case: Case,
    tensors: Tensors,
    *,
    general: bool = False,
    numbers: dict[str, int] | None = None,
) -> None:
    """Launches the specialised image of the call, or the general one (padded, windowed).
    `numbers` take the place of the case's own window numbers."""
    tile = next(v for v in FORWARD.axis("head_dim").values if int(v) >= case.head_dim)
    key = {
        "dtype": case.dtype,
        "head_dim": tile,
        "tf32": 0,
        "padded": int(general or case.head_dim != tile),
        "windowed": int(general or case.windowed),
    }
    window = numbers or window_numbers(case)
    values = {"scale": case.scale, "tf32": 0, "windowed": case.windowed, **window}
    config = {"BLOCK_M": case.block_m, "BLOCK_N": case.block_n, "num_warps": 4}
    harness.launch(FOLDER, FORWARD, harness.Call(tensors, values), key, config)


def check(case: Case, tensors: Tensors) -> None:
    """Compares out and lse with the reference on the same inputs."""
    q, k, v, out = (_array(tensors[name]) for name in ("q", "k", "v", "out"))
    window = (case.left, case.right, case.align)
    expected, expected_lse = REFERENCE.attention_forward(q, k, v, case.scale, *window)
    empty = np.isneginf(expected_lse)
    assert not np.isnan(out).any()
    assert not out[empty].any()
    norm = np.linalg.norm(expected)
    assert np.linalg.norm(out - expected) <= TOLERANCE[case.dtype] * norm
    if tensors["lse"] is not None:
        lse = _array(tensors["lse"])
        assert np.isneginf(lse[empty]).all()
        bound = 2e-5 * (1 + np.abs(expected_lse[~empty]))
        assert (np.abs(lse[~empty] - expected_lse[~empty]) <= bound).all()


def _array(tensor: torch.Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.double().numpy()


def verify(case: Case, *, general: bool = False) -> None:
    tensors = make_tensors(case)
    run(case, tensors, general=general)
    check(case, tensors)


# The tests' own tools must be able to fail.


def test_check_notices_one_wrong_row() -> None:
    case = Case(dtype="fp32")
    tensors = make_tensors(case)
    run(case, tensors)
    out = tensors["out"]
    assert out is not None
    out[0, 1, 7] *= 1.01
    with pytest.raises(AssertionError):
        check(case, tensors)


def test_check_notices_base_2_lse() -> None:
    case = Case(dtype="fp32")
    tensors = make_tensors(case)
    run(case, tensors)
    assert tensors["lse"] is not None
    tensors["lse"] *= 1.4426950408889634
    with pytest.raises(AssertionError):
        check(case, tensors)


@pytest.mark.parametrize("align", [UPPER_LEFT, LOWER_RIGHT])
def test_reference_agrees_with_a_dense_softmax(align: int) -> None:
    case = Case(dtype="fp32", seqlen_q=5, seqlen_k=9, heads_q=4, right=1, left=3, align=align)
    q, k, v = (_array(make_tensors(case)[name]) for name in ("q", "k", "v"))
    out, lse = REFERENCE.attention_forward(q, k, v, case.scale, case.left, case.right, align)
    distance = np.arange(9)[None, :] - np.arange(5)[:, None] - (4 if align else 0)
    s = case.scale * q @ np.repeat(k, 2, axis=1).swapaxes(-1, -2)
    p = np.exp(s) * ((distance >= -3) & (distance <= 1))
    assert np.allclose(lse, np.log(p.sum(-1)), rtol=1e-12)
    assert np.allclose(out, p / p.sum(-1, keepdims=True) @ np.repeat(v, 2, axis=1), rtol=1e-10)


# Shapes.


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("head_dim", [1, 16, 17, 32, 72, 80, 96, 128, 256])
def test_head_dims(dtype: str, head_dim: int) -> None:
    scale = head_dim**-0.5
    verify(Case(dtype=dtype, head_dim=head_dim, scale=scale, right=0, block_n=32))


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(("heads_q", "heads_k"), [(4, 4), (6, 2), (5, 1)])
def test_grouped_heads(dtype: str, heads_q: int, heads_k: int) -> None:
    verify(Case(dtype=dtype, batch=2, heads_q=heads_q, heads_k=heads_k))


SEQLENS = [(1, 1), (1, 67), (67, 1), (32, 16), (33, 17), (31, 64), (70, 45), (5, 100), (64, 64)]
WINDOWS = [
    (None, None),
    (None, 0),
    (0, None),
    (7, 3),
    (0, 0),
    (40, 0),
    (3, 40),
    (500, 500),
]


@pytest.mark.parametrize("align", [UPPER_LEFT, LOWER_RIGHT])
@pytest.mark.parametrize(("left", "right"), WINDOWS)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), SEQLENS)
def test_windows(seqlen_q: int, seqlen_k: int, left: int | None, right: int | None, align: int):
    case = Case("fp32", 1, 1, 1, seqlen_q, seqlen_k, left=left, right=right, align=align)
    verify(case)
    verify(replace(case, block_m=16, block_n=32), general=True)


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("right", [None, 0])
def test_no_keys(right: int | None, general: bool) -> None:
    case = Case(seqlen_k=0, right=right)
    tensors = make_tensors(case)
    assert tensors["k"] is not None
    assert tensors["k"].data_ptr() == 0  # null, as a host passes it
    run(case, tensors, general=general)
    check(case, tensors)


@pytest.mark.parametrize("shape", [{"seqlen_q": 0}, {"batch": 0}, {"heads_q": 0, "heads_k": 0}])
def test_no_queries(shape: dict[str, int]) -> None:
    case = replace(Case(), **shape)
    tensors = make_tensors(case)
    run(case, tensors)
    assert tensors["out"] is not None
    assert tensors["out"].numel() == 0


def test_windows_that_leave_rows_without_keys() -> None:
    """Lower-right causal with more queries than keys: the first rows see nothing."""
    case = Case(seqlen_q=80, seqlen_k=20, right=0, align=LOWER_RIGHT)
    tensors = make_tensors(case)
    run(case, tensors)
    check(case, tensors)
    assert tensors["lse"] is not None
    assert torch.isneginf(tensors["lse"][..., :60]).all()
    assert torch.isfinite(tensors["lse"][..., 60:]).all()


EXTREMES = [
    (-INT32_MAX - 1, INT32_MAX),
    (-INT32_MAX - 1, -INT32_MAX - 1),
    (INT32_MAX, INT32_MAX),
    (INT32_MAX, -INT32_MAX - 1),
    (-INT32_MAX - 1, 0),
    (0, INT32_MAX),
]


@pytest.mark.parametrize(("low", "high"), EXTREMES)
def test_extreme_window_numbers(low: int, high: int) -> None:
    case = Case(dtype="fp32", right=0)  # right: the windowed image
    tensors = make_tensors(case)
    run(case, tensors, numbers={"window_low": low, "window_high": high})
    none_visible = low > case.seqlen_k or high < -case.seqlen_q
    left, right = (-1, -1) if none_visible else (-low, high)
    check(replace(case, left=left, right=right), tensors)


# Strides.


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, laid out (batch, seq, head, dim)."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, inside a larger tensor, off alignment and with gaps in every dimension."""
    shape = [2 * size + 1 for size in tensor.shape[:3]] + [tensor.shape[3] + 5]
    parent = torch.full(shape, torch.nan, dtype=tensor.dtype)
    view = parent[1::2, 1::2, 1::2, 3:-2]
    view.copy_(tensor)
    return view


@pytest.mark.parametrize("layout", [_transposed, _sliced])
@pytest.mark.parametrize("general", [False, True])
def test_layouts(layout, general: bool) -> None:
    case = Case(batch=2, heads_q=4, right=2)
    tensors = make_tensors(case)
    for name in ("q", "k", "v", "out"):
        tensor = tensors[name]
        assert tensor is not None
        tensors[name] = layout(tensor)
    run(case, tensors, general=general)
    check(case, tensors)


def test_strided_lse() -> None:
    case = Case(batch=2)
    tensors = make_tensors(case)
    parent = torch.full((5, 4, case.seqlen_q + 3), torch.nan)
    tensors["lse"] = parent[1::2, 1:3, 2:-1]
    run(case, tensors)
    check(case, tensors)
    assert torch.isnan(parent[0::2]).all()
    assert torch.isnan(parent[..., :2]).all()


def test_keys_expanded_over_batch_and_heads() -> None:
    case = Case(batch=3, heads_q=4, heads_k=2)
    tensors = make_tensors(case)
    for name in ("k", "v"):
        tensor = tensors[name]
        assert tensor is not None
        tensors[name] = tensor[:1, :1].expand(3, 2, -1, -1)
    run(case, tensors)
    check(case, tensors)


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    """Strides so large that batch, head and row offsets need 64 bits, in files full of holes."""
    case = Case(batch=2, heads_q=2, heads_k=2, seqlen_q=3, seqlen_k=3, right=0)
    tensors = make_tensors(case)
    step = 2**30 + 64
    for name in ("q", "k"):
        tensor = tensors[name]
        assert tensor is not None
        parent = torch.from_numpy(np.memmap(tmp_path / name, np.float16, "w+", shape=8 * step))
        view = parent.as_strided(tensor.shape, (4 * step, 2 * step, step // 2, 1))
        view.copy_(tensor)
        tensors[name] = view
    run(case, tensors)
    check(case, tensors)


def test_as_many_keys_as_32_bits_count() -> None:
    """Only the last ten of 2^31 - 1 keys are visible, and all are one key in memory."""
    case = Case(dtype="fp32", seqlen_q=1, seqlen_k=1, left=0, right=0)
    tensors = make_tensors(case)
    for name in ("k", "v"):
        tensor = tensors[name]
        assert tensor is not None
        tensors[name] = tensor.expand(-1, -1, INT32_MAX, -1)
    run(case, tensors, numbers={"window_low": INT32_MAX - 10, "window_high": INT32_MAX})
    assert tensors["lse"] is not None
    tensors["lse"] -= float(np.log(10))
    check(case, tensors | make_tensors(case) | {"out": tensors["out"], "lse": tensors["lse"]})


# Numbers.


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("scale", [-0.7, 0.0, -0.0, 1e-37, 2.5])
def test_scales(dtype: str, scale: float) -> None:
    verify(Case(dtype=dtype, scale=scale, right=0))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("sign", [1, -1])
def test_large_inputs(dtype: str, sign: int) -> None:
    """Row maxima beyond 1e4, where a rounded maximum would overflow the exponent."""
    case = Case(dtype=dtype, scale=sign * 1.0, right=0)
    tensors = make_tensors(case, spread=90.0)
    run(case, tensors)
    assert tensors["lse"] is not None
    assert tensors["lse"].max() > 1e4
    check(case, tensors)


def test_equal_large_scores() -> None:
    """All keys alike, scores 1e6: out is the mean of v, lse the score plus log of the count."""
    case = Case(dtype="bf16", scale=1.0)
    tensors = make_tensors(case)
    for name in ("q", "k"):
        tensors[name] = torch.full_like(tensors[name], 250.0)
    run(case, tensors)
    check(case, tensors)


@pytest.mark.parametrize("general", [False, True])
def test_nan_in_keys_that_no_row_sees(general: bool) -> None:
    """Keys beyond every window do not count, nor do those that only some rows of a tile see."""
    case = Case(dtype="fp32", seqlen_q=40, seqlen_k=64, right=0)
    tensors = make_tensors(case)
    assert tensors["k"] is not None
    tensors["k"][:, :, 40:] = torch.nan
    run(case, tensors, general=general)
    check(case, tensors)


def test_nan_in_a_key_reaches_the_rows_that_see_it_and_no_others() -> None:
    case = Case(dtype="fp32", seqlen_q=48, seqlen_k=48, right=0)
    tensors = make_tensors(case)
    assert tensors["k"] is not None
    assert tensors["out"] is not None
    tensors["k"][:, :, 21] = torch.nan
    run(case, tensors)
    assert torch.isfinite(tensors["out"][:, :, :21]).all()
    assert torch.isnan(tensors["out"][:, :, 21:]).all()


def test_memory_around_the_tensors_is_not_read_into_the_result() -> None:
    """Ragged ends and padding: what follows the last row and the last element is NaN."""
    case = Case(dtype="fp32", seqlen_q=33, seqlen_k=17, head_dim=24)
    tensors = make_tensors(case)
    for name in ("q", "k", "v"):
        tensor = tensors[name]
        assert tensor is not None
        tensors[name] = _sliced(tensor)
    run(case, tensors)
    check(case, tensors)


@pytest.mark.parametrize("right", [None, 0])
def test_without_lse(right: int | None) -> None:
    case = Case(right=right)
    tensors = make_tensors(case)
    tensors["lse"] = None
    run(case, tensors)
    check(case, tensors)


def test_one_more_call_gives_the_same_bits() -> None:
    case = Case(right=0)
    first, second = make_tensors(case), make_tensors(case)
    run(case, first)
    run(case, second)
    for name in ("out", "lse"):
        assert torch.equal(first[name], second[name])
