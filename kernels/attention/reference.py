"""Attention, slow and obvious: numpy in float64. The contract is in docs/attention.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UPPER_LEFT = 0
LOWER_RIGHT = 1


def attention_forward(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    scale: float,
    window_left: int | None = None,
    window_right: int | None = None,
    align: int = UPPER_LEFT,
) -> tuple[Array, Array]:
    """out (B, Hq, Sq, D) and lse (B, Hq, Sq) of q (B, Hq, Sq, D) and k, v (B, Hk, Sk, D).

    Query i stands at key i, or at i + Sk - Sq when align is LOWER_RIGHT, and sees from
    window_left keys before that to window_right keys after it; None is unlimited.
    """
    batch, heads_q, seqlen_q, _ = q.shape
    heads_k, seqlen_k = k.shape[1:3]
    out = np.zeros(q.shape)
    lse = np.full((batch, heads_q, seqlen_q), -np.inf)
    shift = seqlen_k - seqlen_q if align == LOWER_RIGHT else 0
    for b in range(batch):
        for h in range(heads_q):
            keys = k[b, h // (heads_q // heads_k)].astype(np.float64)  # (Sk, D)
            values = v[b, h // (heads_q // heads_k)].astype(np.float64)  # (Sk, D)
            for i in range(seqlen_q):
                first = 0 if window_left is None else max(0, i + shift - window_left)
                stop = (
                    seqlen_k
                    if window_right is None
                    else min(seqlen_k, i + shift + window_right + 1)
                )
                if first >= stop:
                    continue
                s = scale * (keys[first:stop] @ q[b, h, i].astype(np.float64))  # (visible keys,)
                p = np.exp(s - s.max())
                out[b, h, i] = p @ values[first:stop] / p.sum()
                lse[b, h, i] = s.max() + np.log(p.sum())
    return out, lse


def attention_backward(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    dout: NDArray[Any],
    scale: float,
    window_left: int | None = None,
    window_right: int | None = None,
    align: int = UPPER_LEFT,
) -> tuple[Array, Array, Array]:
    """dq, dk and dv, the gradients of sum(dout * out), in the shapes of q, k and v."""
    _, heads_q, seqlen_q, _ = q.shape
    heads_k, seqlen_k = k.shape[1:3]
    dq, dk, dv = (np.zeros(x.shape) for x in (q, k, v))
    shift = seqlen_k - seqlen_q if align == LOWER_RIGHT else 0
    for b, h, i in np.ndindex(q.shape[:3]):
        kv = h // (heads_q // heads_k)
        first = 0 if window_left is None else max(0, i + shift - window_left)
        stop = seqlen_k if window_right is None else min(seqlen_k, i + shift + window_right + 1)
        if first >= stop:
            continue
        keys = k[b, kv, first:stop].astype(np.float64)  # (visible keys, D)
        values = v[b, kv, first:stop].astype(np.float64)
        query = q[b, h, i].astype(np.float64)  # (D,)
        upstream = dout[b, h, i].astype(np.float64)
        s = scale * (keys @ query)  # (visible keys,)
        p = np.exp(s - s.max())
        p /= p.sum()
        dp = values @ upstream
        ds = p * (dp - p @ dp)
        dq[b, h, i] = scale * (ds @ keys)
        dk[b, kv, first:stop] += scale * np.outer(ds, query)
        dv[b, kv, first:stop] += np.outer(p, upstream)
    return dq, dk, dv
