"""Attention for PyTorch: operators with gradients that `torch.compile` can trace, and a
`scaled_dot_product_attention` with PyTorch's signature.

The operators are `torch.ops.aotbuild.attention_forward` and `attention_backward`. They run on the
current stream of the tensors' device and can be captured in CUDA graphs. Packs are found by the
default library; see `aotbuild.describe`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from aotbuild import runtime
from aotbuild.errors import NotServedError, Status

__all__ = ["attention", "reason_not_served", "scaled_dot_product_attention"]

Align = Literal["upper_left", "lower_right"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MAX_HEAD_DIM = 256


@torch.library.custom_op("aotbuild::attention_forward", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window_left: int | None,
    window_right: int | None,
    align: str,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor]:
    out, lse = runtime.attention(
        q,
        k,
        v,
        window=(window_left, window_right),
        align=align,  # type: ignore[arg-type]
        scale=scale,
        allow_tf32=allow_tf32,
        return_lse=True,
    )
    return out, lse


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("aotbuild::attention_backward", mutates_args=())
def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    scale: float,
    window_left: int | None,
    window_right: int | None,
    align: str,
    allow_tf32: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return runtime.attention_backward(
        q,
        k,
        v,
        out,
        lse,
        dout if dout.stride(-1) == 1 else dout.contiguous(),
        window=(window_left, window_right),
        align=align,  # type: ignore[arg-type]
        scale=scale,
        allow_tf32=allow_tf32,
    )


@_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.options = options
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * len(ctx.options)
    if dlse is not None:
        raise NotImplementedError("aotbuild.torch: lse has no gradient; detach it before use")
    if dout is None:
        return (None, None, None, *none)
    return (*_backward(*ctx.saved_tensors, dout, *ctx.options), *none)


_forward.register_autograd(_gradients, setup_context=_setup_context)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool | Align | None = None,
    window: tuple[int | None, int | None] | None = None,
    align: Align | None = None,
    scale: float | None = None,
    allow_tf32: bool = False,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`aotbuild.attention` with gradients of q, k and v. The same arguments, shapes and errors;
    lse carries no gradient."""
    out, lse = _attend(q, k, v, causal, window, align, scale, allow_tf32)
    return (out, lse) if return_lse else out


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool | Align | None,
    window: tuple[int | None, int | None] | None = None,
    align: Align | None = None,
    scale: float | None = None,
    allow_tf32: bool = False,
) -> tuple[Tensor, Tensor]:
    left, right, named = runtime.window_bounds(q.shape[2], k.shape[2], causal, window, align)
    factor = 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale
    out, lse = _forward(q, k, v, factor, left, right, named, allow_tf32)
    return out, lse


def reason_not_served(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    """Why `scaled_dot_product_attention` cannot serve a call; "" if it may, and only the packs on
    the search path decide."""
    tensors = {"query": query, "key": key, "value": value}
    reasons = itertools.chain(
        _options(attn_mask, dropout_p), _tensors(tensors), _shapes(tensors, enable_gqa)
    )
    return next(reasons, "")


def _options(attn_mask: Tensor | None, dropout_p: float) -> Iterator[str]:
    if attn_mask is not None:
        yield "attn_mask is not supported yet"
    if dropout_p != 0:
        yield f"dropout_p is {dropout_p}; dropout is not supported yet"


def _tensors(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    query = tensors["query"]
    for name, tensor in tensors.items():
        if tensor.dim() != query.dim() or tensor.dim() < 2:
            yield f"{name} has {tensor.dim()} dimensions; expected 2 or more, as many as query has"
        if tensor.dtype != query.dtype or tensor.dtype not in _DTYPES:
            yield f"{name} has dtype {tensor.dtype}; expected one of {_DTYPES}, for all three"
        if tensor.device.type != "cuda":
            yield f"{name} is on {tensor.device}; expected a GPU"
        if tensor.stride(-1) != 1 and tensor.numel() > 0:
            yield f"{name} has stride {tensor.stride(-1)} in its last dimension; expected 1"


def _shapes(tensors: Mapping[str, Tensor], enable_gqa: bool) -> Iterator[str]:
    sizes = {name: tensor.shape[-1] for name, tensor in tensors.items()}
    if len(set(sizes.values())) != 1 or not 1 <= sizes["query"] <= _MAX_HEAD_DIM:
        yield f"head dimensions are {sizes}; expected one, of 1 to {_MAX_HEAD_DIM}"
    heads = {name: tensor.shape[-3] if tensor.dim() > 2 else 1 for name, tensor in tensors.items()}
    if len(set(heads.values())) != 1 and not enable_gqa:
        yield f"heads are {heads}; pass enable_gqa=True"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, served by packs.

    Raises NotServedError, which says why, for a call that packs do not serve: the case in which a
    program may fall back on PyTorch's own. `is_causal` is the upper-left alignment, as there.
    """
    reason = reason_not_served(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
    if reason:
        raise NotServedError(Status.UNSUPPORTED, f"scaled_dot_product_attention: {reason}")
    out, _ = _attend(
        _four_dimensions(query),
        _four_dimensions(key),
        _four_dimensions(value),
        causal="upper_left" if is_causal else None,
        scale=scale,
    )
    return out.view(query.shape)


def _four_dimensions(tensor: Tensor) -> Tensor:
    """(..., H, S, D) as (B, H, S, D); two dimensions are one head, three are heads of one batch."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.dim() == 4 else tensor.flatten(0, -4)
