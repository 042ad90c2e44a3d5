"""Random attention calls, and their answer in float64."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
BOUNDS = {"fp16": 1e-3, "bf16": 8e-3, "fp32": 1e-5}
LSE_BOUND = 1e-5
_HEAD_DIMS = (16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 224, 256)
_LAYOUTS = ("bhsd", "bshd", "sliced", "odd_rows", "offset", "expanded")
_MAX_SCORES = 64 << 20  # float64 elements of the reference's score matrix


@dataclass(frozen=True)
class Case:
    """One call. Shapes as in aotbuild.attention; `layouts` of q, k, v and out."""

    dtype: str
    batch: int
    heads_k: int
    ratio: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    layouts: tuple[str, str, str, str]
    causal: str | None
    window: tuple[int | None, int | None] | None
    align: str | None
    scale: float
    seed: int


def random_case(seed: int, dtype: str) -> Case:
    rng = random.Random(f"{seed}-{dtype}")
    batch, heads_k = rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3))
    ratio = rng.choice((1, 2, 4, 7))
    heads = batch * heads_k * ratio
    while True:
        seqlen_q, seqlen_k = (_seqlen(rng) for _ in range(2))
        if rng.random() < 0.2:
            seqlen_k = seqlen_q
        if heads * seqlen_q * seqlen_k <= _MAX_SCORES:
            break
    causal = rng.choice((None, None, "upper_left", "lower_right"))
    window = align = None
    if rng.random() < 0.3:
        reach = max(seqlen_q, seqlen_k, 1)
        left, right = (rng.choice((None, rng.randrange(reach))) for _ in range(2))
        window = (left, right)
        align = None if causal else rng.choice(("upper_left", "lower_right"))
    layouts = [rng.choice(_LAYOUTS) for _ in range(3)]
    return Case(
        dtype=dtype,
        batch=batch,
        heads_k=heads_k,
        ratio=ratio,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        head_dim=rng.choice((*_HEAD_DIMS, rng.randint(1, 256))),
        layouts=(*layouts, rng.choice(_LAYOUTS[:-1])),
        causal=causal,
        window=window,
        align=align,
        scale=rng.choice((1, 1, 1, -1)) * 10 ** rng.uniform(-2, 0),
        seed=seed,
    )


def _seqlen(rng: random.Random) -> int:
    short, middle, long = rng.randint(2, 65), rng.randint(2, 600), rng.randint(600, 4100)
    return rng.choice((0, 1, short, middle, middle, long, rng.choice((127, 128, 129, 1024, 4096))))


def arrange(
    shape: tuple[int, int, int, int], layout: str, dtype: torch.dtype, device: Any
) -> torch.Tensor:
    """An uninitialised (B, H, S, D) view whose memory is laid out as `layout` says."""
    b, h, s, d = shape
    if layout == "bshd":
        return torch.empty(b, s, h, d, dtype=dtype, device=device).transpose(1, 2)
    if layout == "sliced":
        return torch.empty(b, h + 1, s + 2, d + 8, dtype=dtype, device=device)[:, 1:, 2:, 8:]
    if layout == "odd_rows":
        return torch.empty(b, h, s, d + 1, dtype=dtype, device=device)[..., :d]
    if layout == "offset":
        return torch.empty(b * h * s * d + 1, dtype=dtype, device=device)[1:].view(shape)
    if layout == "expanded":
        return torch.empty(1, h, s, d, dtype=dtype, device=device).expand(b, h, s, d)
    return torch.empty(shape, dtype=dtype, device=device)


def operands(case: Case, device: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v with fresh random content."""
    generator = torch.Generator(device="cpu").manual_seed(case.seed)
    heads_q = case.heads_k * case.ratio
    made = []
    for heads, length, layout in zip(
        (heads_q, case.heads_k, case.heads_k),
        (case.seqlen_q, case.seqlen_k, case.seqlen_k),
        case.layouts,
        strict=False,
    ):
        shape = (case.batch, heads, length, case.head_dim)
        tensor = arrange(shape, layout, DTYPES[case.dtype], device)
        target = tensor[:1] if layout == "expanded" else tensor
        target.copy_(torch.randn(target.shape, generator=generator))
        made.append(tensor)
    return made[0], made[1], made[2]


def visible(case: Case, device: Any) -> torch.Tensor:
    """(Sq, Sk) bool: which keys each query sees."""
    shift = case.seqlen_k - case.seqlen_q
    lower = "lower_right" in (case.causal, case.align)
    position = torch.arange(case.seqlen_q, device=device)[:, None] + (shift if lower else 0)
    key = torch.arange(case.seqlen_k, device=device)[None, :]
    seen = torch.ones(case.seqlen_q, case.seqlen_k, dtype=torch.bool, device=device)
    left, right = case.window or (None, None)
    if case.causal:
        right = 0
    if left is not None:
        seen &= key >= position - left
    if right is not None:
        seen &= key <= position + right
    return seen


def reference(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) in float64, by the definition."""
    keys = k.double().repeat_interleave(case.ratio, dim=1)
    values = v.double().repeat_interleave(case.ratio, dim=1)
    scores = (q.double() @ keys.transpose(2, 3)) * float(torch.tensor(case.scale).float())
    scores = scores.masked_fill(~visible(case, q.device), -math.inf)
    lse = torch.logsumexp(scores, dim=3)
    lse = torch.where(torch.isnan(lse), torch.full_like(lse, -math.inf), lse)
    weights = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return weights @ values, lse


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||, or the largest |got| where want is 0; NaN stays NaN."""
    norm = float(want.norm())
    difference = got.double() - want
    return float(difference.norm()) / norm if norm else float(difference.abs().sum())


def lse_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest |got - want| / max(1, |want|) of the rows with keys; infinite if -inf differs."""
    empty = want == -math.inf
    if not torch.equal(empty, got == -math.inf):
        return math.inf
    difference = (got.double() - want)[~empty].abs() / want[~empty].abs().clamp(min=1)
    return float(difference.max()) if difference.numel() else 0.0
