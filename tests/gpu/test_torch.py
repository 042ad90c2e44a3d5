"""aotbuild.torch on a real GPU: gradients, torch.compile and CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotbuild import runtime
from aotbuild import torch as integration

BOUND = 1.6e-2  # bfloat16


@pytest.fixture(autouse=True)
def packs(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators use the default library; here that is the one under test."""
    monkeypatch.setattr(runtime, "default_library", lambda: library)


@pytest.fixture
def leaves(device: Any) -> list[torch.Tensor]:
    return [
        torch.randn(2, 8, 333, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]


def exact(leaves: list[torch.Tensor]) -> list[Any]:
    """Gradients of the sum of causal attention, in float64."""
    copies = [x.detach().double().requires_grad_() for x in leaves]
    out = torch.nn.functional.scaled_dot_product_attention(*copies, is_causal=True)
    return list(torch.autograd.grad(out.sum(), copies))


def check(record: Any, name: str, got: Any, leaves: list[torch.Tensor]) -> None:
    for made, want in zip(got, exact(leaves), strict=True):
        error = float((made.double() - want).norm() / want.norm())
        record.worst(f"aotbuild.torch bf16: gradients, {name}", error, BOUND)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
def test_sdpa_has_gradients(record: Any, leaves: list[torch.Tensor]) -> None:
    out = integration.scaled_dot_product_attention(*leaves, is_causal=True)
    check(record, "eager", torch.autograd.grad(out.sum(), leaves), leaves)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_is_traced_whole_by_torch_compile(record: Any, leaves: list[torch.Tensor]) -> None:
    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return integration.attention(q, k, v, causal="upper_left").sum()

    made = torch.compile(loss, fullgraph=True)(*leaves)
    check(record, "torch.compile", torch.autograd.grad(made, leaves), leaves)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_are_captured_in_a_graph(record: Any, leaves: list[torch.Tensor]) -> None:
    def step() -> Any:
        out = integration.attention(*leaves, causal=True)
        return torch.autograd.grad(out.sum(), leaves)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    with torch.no_grad():
        for leaf in leaves:
            leaf.copy_(torch.randn_like(leaf))
    graph.replay()
    check(record, "graph replay", made, leaves)
