"""Packed attention backward on a real GPU against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import DTYPES, Case, arrange, operands, random_case, reference, relative_error, visible

import aotbuild

CASES_PER_DTYPE = 100
BOUNDS = {"fp16": 2e-3, "bf16": 1.6e-2, "fp32": 2e-5}
#: Of q's dtype; what a product of rounded factors may be off, where the sum cancels.
ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-22}

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def gradients(case: Case, qkv: Three, dout: torch.Tensor) -> tuple[Three, Three]:
    """(dq, dk, dv) in float64 by the definition, and the same sums over absolute values."""
    q, k, v = (tensor.double() for tensor in qkv)
    keys, values = (x.repeat_interleave(case.ratio, dim=1) for x in (k, v))
    out, lse = reference(case, *qkv)
    scale = float(torch.tensor(case.scale).float())
    scores = (q @ keys.transpose(2, 3)) * scale
    finite = torch.where(lse == -torch.inf, 0.0, lse)[..., None]
    weights = torch.exp(scores - finite) * visible(case, q.device)  # (B, Hq, Sq, Sk)
    upstream = dout.double()
    dweights = upstream @ values.transpose(2, 3)
    delta = (upstream * out).sum(3, keepdim=True)
    dscores = weights * (dweights - delta)
    gross = weights * (upstream.abs() @ values.abs().transpose(2, 3) + delta.abs())

    def all_three(ds: torch.Tensor, up: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Three:
        dq = abs(scale) * ds @ b
        dk = abs(scale) * ds.transpose(2, 3) @ a
        dv = weights.transpose(2, 3) @ up
        groups = (case.batch, case.heads_k, case.ratio, case.seqlen_k, case.head_dim)
        return dq, dk.view(groups).sum(2), dv.view(groups).sum(2)

    sign = 1.0 if scale >= 0 else -1.0
    want = all_three(sign * dscores, upstream, q, keys)
    return want, all_three(gross, upstream.abs(), q.abs(), keys.abs())


def gradient_error(got: torch.Tensor, want: torch.Tensor, gross: torch.Tensor, dtype: str) -> float:
    """||got - want|| relative to ||want||, allowing for roundoff of sums that cancel."""
    room = float(want.norm()) + ROUNDOFF[dtype] / BOUNDS[dtype] * float(gross.norm())
    difference = float((got.double() - want).norm())
    return difference / room if room else difference


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("seed", range(CASES_PER_DTYPE))
def test_random_call(library: Any, record: Any, device: Any, dtype: str, seed: int) -> None:
    case = random_case(seed, dtype)
    q, k, v = qkv = operands(case, device)
    mask = {"causal": case.causal, "window": case.window, "align": case.align}
    out, lse = aotbuild.attention(
        q, k, v, **mask, scale=case.scale, return_lse=True, library=library
    )
    dout = arrange(tuple(q.shape), case.layouts[3], DTYPES[dtype], device)
    dout.copy_(torch.randn(q.shape, generator=torch.Generator().manual_seed(seed)))
    poisoned = [
        arrange(tuple(x.shape), case.layouts[3], DTYPES[dtype], device).fill_(float("nan"))
        for x in qkv
    ]
    got = aotbuild.attention_backward(
        q, k, v, out, lse, dout, **mask, scale=case.scale,
        dq=poisoned[0], dk=poisoned[1], dv=poisoned[2], library=library,
    )  # fmt: skip
    wants, grosses = gradients(case, qkv, dout)
    for name, made, want, gross in zip(("dq", "dk", "dv"), got, wants, grosses, strict=True):
        error = gradient_error(made, want, gross, dtype)
        record.worst(f"attention.backward {dtype}: {name}", error, BOUNDS[dtype])


# PyTorch's backward thread makes its own context, and says so.
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(library: Any, record: Any, device: Any, causal: bool) -> None:
    q, k, v, dout = (
        torch.randn(2, 8, 777, 128, device=device, dtype=torch.bfloat16) for _ in range(4)
    )
    out, lse = aotbuild.attention(q, k, v, causal=causal, return_lse=True, library=library)
    got = aotbuild.attention_backward(q, k, v, out, lse, dout, causal=causal, library=library)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal).backward(
        dout.double()
    )
    for name, made, leaf in zip(("dq", "dk", "dv"), got, exact, strict=True):
        assert leaf.grad is not None
        error = relative_error(made, leaf.grad)
        record.worst(f"attention.backward bf16 against torch: {name}", error, BOUNDS["bf16"])


def test_repeated_runs_are_bit_equal(library: Any, device: Any) -> None:
    q, dout = (torch.randn(2, 8, 1000, 128, device=device, dtype=torch.float16) for _ in range(2))
    k, v = (torch.randn(2, 2, 1000, 128, device=device, dtype=torch.float16) for _ in range(2))
    out, lse = aotbuild.attention(q, k, v, causal=True, return_lse=True, library=library)
    first = aotbuild.attention_backward(q, k, v, out, lse, dout, causal=True, library=library)
    for _ in range(20):
        again = aotbuild.attention_backward(q, k, v, out, lse, dout, causal=True, library=library)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
