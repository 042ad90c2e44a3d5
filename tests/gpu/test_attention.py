"""Packed attention on a real GPU against float64."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from cases import (
    BOUNDS,
    DTYPES,
    LSE_BOUND,
    arrange,
    lse_error,
    operands,
    random_case,
    reference,
    relative_error,
)

import aotbuild

CASES_PER_DTYPE = 100


def poisoned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(float("nan"))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("seed", range(CASES_PER_DTYPE))
def test_random_call(library: Any, record: Any, device: Any, dtype: str, seed: int) -> None:
    case = random_case(seed, dtype)
    q, k, v = operands(case, device)
    out = poisoned(arrange(tuple(q.shape), case.layouts[3], DTYPES[dtype], device))
    lse = poisoned(torch.empty(q.shape[:3], device=device))
    got = aotbuild.attention(
        q, k, v, causal=case.causal, window=case.window, align=case.align, scale=case.scale,
        out=out, lse=lse, return_lse=True, library=library,
    )  # fmt: skip
    assert got[0] is out
    assert got[1] is lse
    want, want_lse = reference(case, q, k, v)
    record.worst(f"attention.forward {dtype}: lse", lse_error(lse, want_lse), LSE_BOUND)
    record.worst(f"attention.forward {dtype}: out", relative_error(out, want), BOUNDS[dtype])


def test_tf32_is_used_when_allowed_and_only_then(library: Any, record: Any, device: Any) -> None:
    q, k, v = (torch.randn(2, 4, 300, 64, device=device) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)))
    fast = aotbuild.attention(q, k, v, allow_tf32=True, library=library)
    exact = aotbuild.attention(q, k, v, library=library)
    record.worst("attention.forward fp32 with tf32: out", relative_error(fast, want), 2e-3)
    record.worst("attention.forward fp32: out", relative_error(exact, want), BOUNDS["fp32"])
    assert relative_error(fast, want) > 10 * relative_error(exact, want)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(
    library: Any, record: Any, device: Any, dtype: str, causal: bool
) -> None:
    q, k, v = (torch.randn(2, 8, 777, 128, device=device, dtype=DTYPES[dtype]) for _ in range(3))
    got = aotbuild.attention(q, k, v, causal=causal, library=library)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q, k, v)), is_causal=causal
    )
    record.worst(f"attention.forward {dtype}: out", relative_error(got, want), BOUNDS[dtype])


def test_offsets_beyond_32_bits(library: Any, record: Any, device: Any) -> None:
    """Views whose stride times index passes 2^31 elements."""
    length, head_dim = 130, 64
    step = 2**31 // (length - 2) // 8 * 8
    memory = torch.empty(step * (length - 1) + head_dim, dtype=torch.float16, device=device)
    wide = memory.as_strided((1, 1, length, head_dim), (0, 0, step, 1))
    wide.copy_(torch.randn(wide.shape, device=device))
    assert step * (length - 1) > 2**31
    want = torch.nn.functional.scaled_dot_product_attention(*(wide.double() for _ in range(3)))
    out = memory.new_empty(wide.shape)
    aotbuild.attention(wide, wide, wide, out=out, library=library)
    record.worst("attention.forward fp16: wide views", relative_error(out, want), BOUNDS["fp16"])


def test_large_bf16_inputs_do_not_overflow(library: Any, record: Any, device: Any) -> None:
    q, k, v = (torch.randn(1, 2, 257, 128, device=device, dtype=torch.bfloat16) for _ in range(3))
    q, k = q * 200, k * 200
    out, lse = aotbuild.attention(q, k, v, scale=1.0, return_lse=True, library=library)
    scores = q.double() @ k.double().transpose(2, 3)
    want = torch.softmax(scores, 3) @ v.double()
    record.worst("attention.forward bf16: large inputs", relative_error(out, want), BOUNDS["bf16"])
    record.worst(
        "attention.forward bf16: lse, large inputs",
        lse_error(lse, torch.logsumexp(scores, 3)),
        LSE_BOUND,
    )


def test_repeated_runs_are_bit_equal(library: Any, device: Any) -> None:
    q, k, v = (torch.randn(2, 4, 1000, 128, device=device, dtype=torch.float16) for _ in range(3))
    first = aotbuild.attention(q, k, v, causal=True, library=library)
    for _ in range(20):
        assert torch.equal(aotbuild.attention(q, k, v, causal=True, library=library), first)


def test_runs_on_the_current_stream_of_the_arrays(library: Any, device: Any) -> None:
    q = torch.zeros(1, 8, 4096, 128, device=device, dtype=torch.float16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # what follows must wait for this
        v = torch.ones_like(q)
        out = aotbuild.attention(q, q, v, library=library)
    side.synchronize()
    assert torch.equal(out, torch.ones_like(out))


def test_is_captured_in_a_graph(library: Any, record: Any, device: Any) -> None:
    q, k, v = (torch.randn(1, 2, 200, 64, device=device, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    aotbuild.attention(q, k, v, out=out, library=library)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        aotbuild.attention(q, k, v, out=out, library=library)
    for tensor in (q, k, v):
        tensor.copy_(torch.randn_like(tensor))
    out.fill_(float("nan"))
    graph.replay()
    want = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)))
    record.worst("attention.forward fp16: graph replay", relative_error(out, want), 1e-3)


def test_first_use_by_many_threads(request: pytest.FixtureRequest, device: Any) -> None:
    packs = request.config.getoption("--packs")
    fresh = aotbuild.Library([packs] if packs else [])
    q = torch.randn(1, 2, 64, 64, device=device, dtype=torch.float16)
    want = torch.nn.functional.scaled_dot_product_attention(*(q.double() for _ in range(3)))
    errors: list[float] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        errors.append(relative_error(aotbuild.attention(q, q, q, library=fresh), want))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 8
    assert max(errors) < BOUNDS["fp16"]
    torch.cuda.synchronize()
    fresh.close()


def test_leaves_the_current_device_and_context_alone(library: Any, device: Any) -> None:
    before = torch.cuda.current_device()
    q = torch.randn(1, 1, 5, 16, device=device, dtype=torch.float16)
    aotbuild.attention(q, q, q, library=library)
    assert torch.cuda.current_device() == before
    assert torch.ones(3, device=device).sum().item() == 3


@pytest.mark.parametrize("name", ["cupy", "jax"])
def test_other_array_libraries(library: Any, record: Any, device: Any, name: str) -> None:
    module = pytest.importorskip(name)
    q = torch.randn(2, 3, 100, 64, device=device, dtype=torch.float16)
    want = torch.nn.functional.scaled_dot_product_attention(*(q.double() for _ in range(3)))
    array = module.from_dlpack(q) if name == "cupy" else module.dlpack.from_dlpack(q)
    out, lse = aotbuild.attention(array, array, array, return_lse=True, library=library)
    assert type(out) is type(array)
    got = torch.from_dlpack(out).to(device)
    record.worst(f"attention.forward fp16 through {name}: out", relative_error(got, want), 1e-3)
    assert tuple(lse.shape) == (2, 3, 100)


def test_call_that_no_image_serves_is_an_error_and_writes_nothing(
    library: Any, device: Any
) -> None:
    q = torch.randn(1, 1, 5, 300, device=device, dtype=torch.float16)
    out = torch.full_like(q, 7)
    with pytest.raises(aotbuild.AotbuildError, match=r"300|256"):
        aotbuild.attention(q, q, q, out=out, library=library)
    assert torch.equal(out, torch.full_like(q, 7))
