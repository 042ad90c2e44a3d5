"""Attention forward against torch's own, in one run: `python benchmarks/attention.py`.

Prints a table of ratios (time of torch / time of aotbuild; above 1 aotbuild is faster) for shapes
of 16k tokens with heads x head_dim = 2048, and the cost of one call on the host. With
`--results DIR` writes DIR/<arch>-attention.md. Times are medians of device events.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import aotbuild

TOKENS, WIDTH = 16384, 2048
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def milliseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Median device time of `call` after three warm-ups."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def torch_milliseconds(backend: SDPBackend, call: Callable[[], object]) -> float | None:
    """Time of torch's attention with one back end, None where that cannot serve the call."""
    try:
        with sdpa_kernel(backend):
            return milliseconds(call)
    except RuntimeError:
        return None


def row(
    library: aotbuild.Library, dtype: torch.dtype, head_dim: int, length: int, causal: bool
) -> str:
    """One line of the table."""
    heads, batch = WIDTH // head_dim, TOKENS // length
    q, k, v = (
        torch.randn(batch, heads, length, head_dim, device="cuda", dtype=dtype) for _ in range(3)
    )
    out = torch.empty_like(q)
    ours = milliseconds(
        lambda: aotbuild.attention(q, k, v, causal=causal, out=out, library=library)
    )
    flops = 4 * batch * heads * length * length * head_dim / (2 if causal else 1)
    cells = [str(dtype).removeprefix("torch."), head_dim, length, "causal" if causal else "full"]
    cells.append(f"{flops / ours / 1e9:.0f}")
    for backend in BACKENDS.values():
        other = torch_milliseconds(
            backend,
            lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        )
        cells.append("-" if other is None else f"{other / ours:.2f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def host_microseconds(library: aotbuild.Library, repeats: int = 2000) -> float:
    """Mean host time of one small call, launches being asynchronous."""
    q = torch.randn(1, 1, 16, 64, device="cuda", dtype=torch.float16)
    out = torch.empty_like(q)
    for _ in range(100):
        aotbuild.attention(q, q, q, out=out, library=library)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        aotbuild.attention(q, q, q, out=out, library=library)
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed / repeats * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packs")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    library = (
        aotbuild.Library([options.packs], paths_only=True) if options.packs else aotbuild.Library()
    )
    rows = [
        row(library, dtype, head_dim, length, causal)
        for dtype in (torch.bfloat16, torch.float16)
        for head_dim in (64, 128, 256)
        for length in (512, 4096, 16384)
        for causal in (False, True)
        if dtype is torch.bfloat16 or length == 4096
    ]
    rows += [row(library, torch.float32, head_dim, 4096, False) for head_dim in (64, 128)]
    arch = aotbuild.device_arch(torch.empty(1, device="cuda"))
    text = "\n".join(
        [
            f"# Attention forward on {torch.cuda.get_device_name(0)} ({arch})",
            "",
            "Written by `benchmarks/attention.py`; do not edit.",
            "",
            f"torch {torch.__version__}; {TOKENS} tokens, heads x head_dim = {WIDTH}.",
            "Ratios are torch's time / aotbuild's.",
            f"One small call costs {host_microseconds(library):.1f} us on the host.",
            "",
            "| dtype | head_dim | seqlen | mask | TFLOP/s | " + " | ".join(BACKENDS) + " |",
            "|---" * (5 + len(BACKENDS)) + "|",
            *rows,
            "",
        ]
    )
    print(text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / f"{arch}-attention.md").write_text(text)


if __name__ == "__main__":
    main()
