"""aotbuild.torch without a GPU: what it refuses, shapes under tracing, and how gradients flow. The
runtime is replaced by PyTorch's own arithmetic where numbers matter; tests/gpu runs the packs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aotbuild import runtime
from aotbuild import torch as integration
from aotbuild.errors import LaunchError, NotServedError, Status

KEYS = {"causal", "window", "align", "scale", "allow_tf32"}


def qkv(dtype: torch.dtype = torch.float32, seqlen_k: int = 7) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 5, 8), (2, 2, seqlen_k, 8), (2, 2, seqlen_k, 8))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def scores(q: Any, k: Any, window: Any, align: str, scale: float) -> torch.Tensor:
    ratio = q.shape[1] // k.shape[1]
    raw = scale * q @ k.repeat_interleave(ratio, 1).transpose(2, 3)
    shift = k.shape[2] - q.shape[2] if align == "lower_right" else 0
    distance = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None] - shift
    left, right = window
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if left is not None:
        hidden |= distance < -left
    if right is not None:
        hidden |= distance > right
    return raw.masked_fill(hidden, -math.inf)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the runtime's two functions, checks what they are given, and keeps it."""
    calls: list[dict[str, Any]] = []

    def forward(q: Any, k: Any, v: Any, *, return_lse: bool, **options: Any) -> Any:
        assert return_lse
        assert set(options) <= KEYS
        calls.append(options)
        s = scores(q, k, options["window"], options["align"], options["scale"])
        values = v.repeat_interleave(q.shape[1] // k.shape[1], 1)
        return torch.softmax(s, 3) @ values, torch.logsumexp(s, 3)

    def backward(q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, **options: Any) -> Any:
        assert set(options) <= KEYS
        assert out.shape == dout.shape == q.shape
        assert lse.shape == q.shape[:3]
        ratio = q.shape[1] // k.shape[1]
        keys, values = (x.repeat_interleave(ratio, 1) for x in (k, v))
        s = scores(q, k, options["window"], options["align"], options["scale"])
        weights = torch.exp(s - lse[..., None])
        delta = (dout * out).sum(3, keepdim=True)
        ds = options["scale"] * weights * (dout @ values.mT - delta)

        def summed(x: torch.Tensor) -> torch.Tensor:
            return x.unflatten(1, (k.shape[1], ratio)).sum(2)

        return ds @ keys, summed(ds.mT @ q), summed(weights.mT @ dout)

    monkeypatch.setattr(runtime, "attention", forward)
    monkeypatch.setattr(runtime, "attention_backward", backward)
    return calls


# ---- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"attn_mask": torch.ones(5, 7)}, "attn_mask is not supported"),
        ({"dropout_p": 0.5}, "dropout_p is 0.5"),
        ({"query": torch.empty(2, 4, 5, 8, device="meta")}, "query is on meta; expected a GPU"),
        ({"value": torch.empty(2, 2, 7)}, "value has 3 dimensions"),
        ({"key": torch.empty(2, 2, 7, 8, dtype=torch.float64)}, "key has dtype torch.float64"),
    ],
)
def test_what_cannot_be_served_is_told(
    change: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = qkv()
    arguments = {"query": q, "key": k, "value": v, "enable_gqa": True} | change
    if "query" not in change:  # as though the tensors were on a GPU
        monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda")))
    assert reason in integration.reason_not_served(**arguments)
    with pytest.raises(NotServedError, match="scaled_dot_product_attention: ") as failure:
        integration.scaled_dot_product_attention(**arguments)
    assert failure.value.status == Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("shapes", "gqa", "reason"),
    [
        (((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)), False, "pass enable_gqa"),
        (((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 16)), True, "'value': 16"),
        (((2, 4, 5, 512), (2, 4, 7, 512), (2, 4, 7, 512)), True, "1 to 256"),
        (((8,), (8,), (8,)), False, "1 dimensions"),
    ],
)
def test_shapes_that_cannot_be_served(
    shapes: Any, gqa: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [torch.zeros(shape) for shape in shapes]
    monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda")))
    with pytest.raises(NotServedError, match=reason):
        integration.scaled_dot_product_attention(*tensors, enable_gqa=gqa)


def test_a_transposed_head_dimension_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = qkv(seqlen_k=5)
    monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda")))
    assert "value has stride 5 in its last" in integration.reason_not_served(
        q, k, v.mT.contiguous().mT, enable_gqa=True
    )
    assert integration.reason_not_served(q, k, v, enable_gqa=True) == ""


def test_host_memory_is_refused_by_the_runtime() -> None:
    with pytest.raises(LaunchError, match="device"):
        integration.attention(*qkv(torch.float16))


def test_a_gradient_of_lse_is_refused(on_the_cpu: list[Any]) -> None:
    leaves = [x.requires_grad_() for x in qkv()]
    _, lse = integration.attention(*leaves, return_lse=True)
    with pytest.raises(NotImplementedError, match="lse has no gradient"):
        lse.sum().backward()


# ---- What reaches the runtime, and what comes back ---------------------------------------------


@pytest.mark.parametrize(
    ("mask", "window", "align"),
    [
        ({}, (None, None), "upper_left"),
        ({"causal": "lower_right"}, (None, 0), "lower_right"),
        ({"window": (2, 3), "align": "upper_left"}, (2, 3), "upper_left"),
    ],
)
def test_gradients_are_those_of_the_definition(
    mask: dict[str, Any], window: Any, align: str, on_the_cpu: list[dict[str, Any]]
) -> None:
    q, k, v = (x.double().requires_grad_() for x in qkv())
    out = integration.attention(q, k, v, scale=0.3, **mask)
    out.backward(torch.ones_like(out).mT.contiguous().mT)
    copies = [x.detach().requires_grad_() for x in (q, k, v)]
    weights = torch.softmax(scores(copies[0], copies[1], window, align, 0.3), 3)
    (weights @ copies[2].repeat_interleave(2, 1)).sum().backward()
    for got, want in zip((q, k, v), copies, strict=True):
        torch.testing.assert_close(got.grad, want.grad)
    assert on_the_cpu[0] == {"window": window, "align": align, "scale": 0.3, "allow_tf32": False}


def test_the_operators_pass_pytorchs_own_checks(on_the_cpu: list[Any]) -> None:
    tensors = [x.requires_grad_() for x in qkv()]
    results = torch.library.opcheck(
        torch.ops.aotbuild.attention_forward.default,
        (*tensors, 0.3, None, 0, "lower_right", False),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
    assert set(results.values()) == {"SUCCESS"}


def test_shapes_under_tracing() -> None:
    with torch._subclasses.FakeTensorMode():
        q = torch.empty(3, 4, 50, 64, dtype=torch.bfloat16, device="cuda")
        k = torch.empty(3, 2, 70, 64, dtype=torch.bfloat16, device="cuda")
        out, lse = integration.attention(q, k, k, return_lse=True)
        assert (out.shape, out.dtype, out.device.type) == (q.shape, q.dtype, "cuda")
        assert (lse.shape, lse.dtype) == (q.shape[:3], torch.float32)
        sdpa = integration.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert sdpa.shape == q.shape


@pytest.mark.parametrize("shape", [(5, 8), (4, 5, 8), (2, 4, 5, 8), (3, 2, 4, 5, 8)])
def test_sdpa_takes_any_number_of_dimensions(
    shape: tuple[int, ...], on_the_cpu: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (torch.randn(shape) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    monkeypatch.setattr(integration, "reason_not_served", lambda *_: "")
    got = integration.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(got, want)


def test_importing_aotbuild_does_not_import_it() -> None:
    import subprocess
    import sys

    code = "import sys, aotbuild; aotbuild.attention; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
