"""The backward kernels, interpreted, against kernels/attention/reference.py in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import harness
import numpy as np
import pytest
import torch
from test_attention_forward import (
    DTYPES,
    FOLDER,
    INT32_MAX,
    LOWER_RIGHT,
    REFERENCE,
    UPPER_LEFT,
    Case,
    window_numbers,
)

from aotbuild.families import load_family

FAMILY = load_family(FOLDER).family
TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2, "fp32": 2e-5}
GRADIENTS = ("dq", "dk", "dv")

Tensors = dict[str, Any]


def make_tensors(case: Case, spread: float = 1.0) -> Tensors:
    """Random inputs with the exact out and lse of them, and gradients full of NaN."""
    generator = torch.Generator().manual_seed(case.seqlen_q * 1009 + case.head_dim)
    dtype = DTYPES[case.dtype]
    shape_q = (case.batch, case.heads_q, case.seqlen_q, case.head_dim)
    shape_k = (case.batch, case.heads_k, case.seqlen_k, case.head_dim)

    def random(shape: tuple[int, ...], factor: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * factor).to(dtype)

    tensors: Tensors = {
        "q": random(shape_q, spread),
        "k": random(shape_k, spread),
        "v": random(shape_k),
        "dout": random(shape_q),
        "delta": torch.full(shape_q[:3], torch.nan),
        "dq": torch.full(shape_q, torch.nan, dtype=dtype),
        "dk": torch.full(shape_k, torch.nan, dtype=dtype),
        "dv": torch.full(shape_k, torch.nan, dtype=dtype),
    }
    return tensors | with_outputs(case, tensors)


def with_outputs(case: Case, tensors: Tensors) -> Tensors:
    """out and lse, as the forward kernel would have written them."""
    q, k, v = (_array(tensors[name]) for name in "qkv")
    window = (case.left, case.right, case.align)
    out, lse = REFERENCE.attention_forward(q, k, v, case.scale, *window)
    return {
        "out": torch.from_numpy(out).to(DTYPES[case.dtype]),
        "lse": torch.from_numpy(lse).to(torch.float32),
    }


def run(case: Case, tensors: Tensors, *, general: bool = False) -> None:
    """Launches the three kernels, specialised for the call or as general (padded, windowed)."""
    tile = next(
        v for v in FAMILY.operator("backward_dq").axis("head_dim").values if int(v) >= case.head_dim
    )
    key = {
        "dtype": case.dtype,
        "head_dim": tile,
        "tf32": 0,
        "padded": int(general or case.head_dim != tile),
        "windowed": int(general or case.windowed),
    }
    values = {"scale": case.scale, "tf32": 0, "windowed": case.windowed, **window_numbers(case)}
    config = {"BLOCK_M": case.block_m, "BLOCK_N": case.block_n, "num_warps": 4}
    for name in ("backward_delta", "backward_dkdv", "backward_dq"):
        operator = FAMILY.operator(name)
        call = harness.Call({t.name: tensors[t.name] for t in operator.tensors}, values)
        harness.launch(FOLDER, operator, call, key, config)


def check(case: Case, tensors: Tensors) -> None:
    """Compares the gradients with the reference on the same inputs."""
    q, k, v, dout = (_array(tensors[name]) for name in ("q", "k", "v", "dout"))
    window = (case.left, case.right, case.align)
    expected = REFERENCE.attention_backward(q, k, v, dout, case.scale, *window)
    for name, want in zip(GRADIENTS, expected, strict=True):
        got = _array(tensors[name])
        assert not np.isnan(got).any(), name
        # Where sums cancel (one visible key: dq is 0) roundoff of their terms is what is left.
        room = np.linalg.norm(want) + 0.1 * abs(case.scale) * np.sqrt(q.size + k.size)
        assert np.linalg.norm(got - want) <= TOLERANCE[case.dtype] * room, name


def _array(tensor: torch.Tensor) -> np.ndarray:
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
    check(case, tensors)
    for name in GRADIENTS:
        tensors[name][0, 1, 7] *= 1.05
        with pytest.raises(AssertionError, match=name):
            check(case, tensors)
        tensors[name][0, 1, 7] /= 1.05


def test_the_reference_agrees_with_autograd() -> None:
    case = Case(dtype="fp32", heads_q=4, heads_k=2, left=7, right=3, align=LOWER_RIGHT)
    tensors = make_tensors(case)
    q, k, v = (tensors[name].double().requires_grad_() for name in "qkv")
    keys, values = (x.repeat_interleave(2, 1) for x in (k, v))
    distance = torch.arange(50) - torch.arange(40)[:, None] - 10
    hidden = (distance < -7) | (distance > 3)
    weights = torch.softmax((case.scale * q @ keys.mT).masked_fill(hidden, -torch.inf), 3)
    (weights @ values).backward(tensors["dout"].double())
    arrays = (_array(tensors[name]) for name in ("q", "k", "v", "dout"))
    expected = REFERENCE.attention_backward(*arrays, case.scale, 7, 3, LOWER_RIGHT)
    for leaf, want in zip((q, k, v), expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), want, atol=1e-12)


# Features, and the pairs of them that meet in the kernels.


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("general", [False, True])
def test_dtypes(dtype: str, general: bool) -> None:
    verify(Case(dtype=dtype), general=general)


@pytest.mark.parametrize("head_dim", [1, 8, 24, 40, 64])
def test_head_dimensions(head_dim: int) -> None:
    verify(Case(dtype="fp32", head_dim=head_dim, seqlen_q=20, seqlen_k=33))


@pytest.mark.parametrize(
    ("left", "right"), [(None, 0), (5, None), (None, 4), (9, 2), (0, 0), (3, 30), (100, 100)]
)
@pytest.mark.parametrize("align", [UPPER_LEFT, LOWER_RIGHT])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(70, 33), (33, 70)])
def test_windows(
    left: int | None, right: int | None, align: int, seqlen_q: int, seqlen_k: int
) -> None:
    verify(
        Case(
            dtype="fp32", heads_q=2, heads_k=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
            left=left, right=right, align=align, block_m=16, block_n=16, scale=-0.4,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("heads_q", "heads_k"), [(6, 2), (3, 1), (2, 2)])
@pytest.mark.parametrize("right", [None, 0])
def test_grouped_heads(heads_q: int, heads_k: int, right: int | None) -> None:
    verify(Case(batch=2, heads_q=heads_q, heads_k=heads_k, right=right, align=LOWER_RIGHT))


@pytest.mark.parametrize(("block_m", "block_n"), [(16, 64), (64, 16), (32, 32)])
@pytest.mark.parametrize("window", [(None, None), (11, 3)])
def test_tiles(block_m: int, block_n: int, window: tuple[int | None, int | None]) -> None:
    case = Case(dtype="fp32", seqlen_q=100, seqlen_k=130, left=window[0], right=window[1])
    verify(dataclasses.replace(case, block_m=block_m, block_n=block_n))


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(1, 1), (1, 50), (40, 1), (0, 40), (40, 0)])
@pytest.mark.parametrize("general", [False, True])
def test_lengths(seqlen_q: int, seqlen_k: int, general: bool) -> None:
    verify(Case(dtype="fp32", seqlen_q=seqlen_q, seqlen_k=seqlen_k), general=general)


@pytest.mark.parametrize("scale", [1.0, -0.7, 0.0, 1e-3])
def test_scales(scale: float) -> None:
    verify(Case(dtype="fp32", scale=scale))


def test_rows_without_keys_and_keys_without_rows() -> None:
    case = Case(dtype="fp32", seqlen_q=60, seqlen_k=20, right=0, left=3)
    tensors = make_tensors(case)
    run(case, tensors)
    check(case, tensors)
    assert not tensors["dq"][:, :, 24:].any()
    case = Case(dtype="fp32", seqlen_q=20, seqlen_k=60, right=0)
    tensors = make_tensors(case)
    run(case, tensors)
    check(case, tensors)
    assert not tensors["dk"][:, :, 20:].any()
    assert not tensors["dv"][:, :, 20:].any()


def test_what_no_row_sees_may_be_nan() -> None:
    case = Case(dtype="fp32", seqlen_q=20, seqlen_k=60, right=0)
    tensors = make_tensors(case)
    for name in ("k", "v"):
        tensors[name][:, :, 20:] = torch.nan
    run(case, tensors)
    for name in ("k", "v"):
        tensors[name][:, :, 20:] = 0
    check(case, tensors)


def test_large_bf16_inputs() -> None:
    """Scores near 10^4: what the exponent gets must have been subtracted in float32."""
    case = Case(dtype="bf16", scale=1.0, seqlen_q=20, seqlen_k=30)
    tensors = make_tensors(case, spread=50.0)
    run(case, tensors)
    for name in GRADIENTS:
        assert torch.isfinite(tensors[name]).all()
    q, k, v, dout = (_array(tensors[name]) for name in ("q", "k", "v", "dout"))
    _, _, want = REFERENCE.attention_backward(q, k, v, dout, case.scale)
    error = np.linalg.norm(_array(tensors["dv"]) - want)
    assert error <= 2 * TOLERANCE["bf16"] * np.linalg.norm(want)


def test_any_strides() -> None:
    case = Case(dtype="fp32", batch=2, heads_q=4, heads_k=2, head_dim=24, right=0)
    tensors = make_tensors(case)
    for name in ("q", "k", "v", "dout", "out", *GRADIENTS):
        old = tensors[name]
        b, h, s, d = old.shape
        view = torch.full((b, s + 3, h, d + 5), torch.nan).to(old.dtype)[:, 2:-1, :, 3:-2]
        tensors[name] = view.transpose(1, 2)
        tensors[name].copy_(old)
    for name in ("k", "v"):  # one head for the whole batch
        tensors[name] = tensors[name][:1].expand(2, -1, -1, -1)
    tensors |= with_outputs(case, tensors)
    run(case, tensors)
    check(case, tensors)


@pytest.mark.parametrize("bounds", [(-INT32_MAX - 1, INT32_MAX), (-INT32_MAX, INT32_MAX - 1)])
def test_bounds_at_the_ends_of_32_bits(
    bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        globals(),
        "window_numbers",
        lambda _: {"window_low": bounds[0], "window_high": bounds[1]},
    )
    verify(Case(dtype="fp32"), general=True)
