"""Runs the operator on a GPU and compares it with PyTorch's own attention in float64.

usage: python check.py [LIBRARY]    (build/libtorch_op.so unless given)
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5}
SHAPES = [  # batch, query heads, key heads, queries, keys, head_dim
    (1, 1, 1, 1, 1, 64),
    (2, 4, 4, 128, 128, 64),
    (2, 8, 2, 300, 300, 128),
    (1, 6, 6, 77, 513, 80),
    (3, 2, 1, 1000, 17, 256),
]


def random_call(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    batch, heads, key_heads, queries, keys, head_dim = shape
    sizes = [(heads, queries), (key_heads, keys), (key_heads, keys)]
    return [torch.randn(batch, h, n, head_dim, dtype=dtype, device=device) for h, n in sizes]


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    wide = (q.double(), k.double(), v.double())
    return scaled_dot_product_attention(*wide, is_causal=causal, enable_gqa=True)


def error(out: torch.Tensor, right: torch.Tensor) -> float:
    return float((out.double() - right).norm() / right.norm())


def check_values(op: torch._ops.OpOverload, device: str) -> bool:
    good = True
    for dtype, tolerance in TOLERANCE.items():
        for shape in SHAPES:
            for causal in (False, True):
                q, k, v = random_call(shape, dtype, device)
                out, _ = op(q, k, v, is_causal=causal)
                found = error(out, expected(q, k, v, causal))
                good &= found < tolerance  # false for a NaN
                print(f"{found:9.2e} (< {tolerance:g})  {dtype} {shape} causal={causal}")
    return good


def check_stream(op: torch._ops.OpOverload, device: str) -> bool:
    """Inputs that a busy stream has yet to write: right only if the launch waits on that stream."""
    q, k, v = random_call((2, 4, 4, 256, 256, 64), torch.float16, device)
    late = torch.zeros_like(q)
    torch.accelerator.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(200_000_000)  # some 100 ms
        late.copy_(q)
        out, _ = op(late, k, v)
    torch.accelerator.synchronize()
    return error(out, expected(q, k, v, False)) < TOLERANCE[torch.float16]


def check_compile(op: torch._ops.OpOverload, device: str) -> bool:
    """opcheck raises where schema, Meta kernel and GPU kernel disagree."""
    q, k, v = random_call((2, 4, 2, 64, 64, 64), torch.bfloat16, device)
    torch.library.opcheck(op, (q, k, v), {"is_causal": True})
    compiled = torch.compile(
        lambda *qkv: op(*qkv, is_causal=True)[0] * 2, backend="aot_eager", fullgraph=True
    )
    return torch.equal(compiled(q, k, v), op(q, k, v, is_causal=True)[0] * 2)


def main() -> int:
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 1
    library = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "build/libtorch_op.so"
    torch.ops.load_library(library)
    op = torch.ops.aotbuild_example.attention.default
    device = f"cuda:{torch.cuda.device_count() - 1}"  # not the current one, where there are two
    print(f"torch {torch.__version__}, {device}: {torch.cuda.get_device_name(device)}")
    torch.manual_seed(1)
    failed = [
        check.__name__
        for check in (check_values, check_stream, check_compile)
        if not check(op, device)
    ]
    print(f"failed: {', '.join(failed)}" if failed else "all right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
