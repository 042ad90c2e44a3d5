"""Attention forward, as in docs/attention.md. One program computes one tile of query rows."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _attend(
    q,  # [BLOCK_M, HEAD_DIM]
    k_tile,  # pointer to the tile's first key
    v_tile,
    stride_ks,
    stride_vs,
    keys,  # [BLOCK_N] i32: indices of the tile's keys
    key_begin,  # [BLOCK_M] i32: row sees keys in [key_begin, key_end)
    key_end,
    seqlen_k,
    head_dim,
    exponent_scale,
    acc,  # [BLOCK_M, HEAD_DIM] fp32: sum of p v
    row_sum,  # [BLOCK_M] fp32: sum of p
    row_max,  # [BLOCK_M] fp32: max of s
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PADDED: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds one tile of keys to the running softmax. MASKED tiles have pairs that do not count."""
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD_DIM)
    k_ptrs = k_tile + n[:, None] * stride_ks + d[None, :]  # [BLOCK_N, HEAD_DIM]
    v_ptrs = v_tile + n[:, None] * stride_vs + d[None, :]  # [BLOCK_N, HEAD_DIM]
    # What lies outside is read as 0: 0 * p must not become NaN in the second product.
    if MASKED and PADDED:
        inside = (keys < seqlen_k)[:, None] & (d < head_dim)[None, :]  # [BLOCK_N, HEAD_DIM]
        k = tl.load(k_ptrs, mask=inside, other=0.0)  # [BLOCK_N, HEAD_DIM]
        v = tl.load(v_ptrs, mask=inside, other=0.0)  # [BLOCK_N, HEAD_DIM]
    elif MASKED:
        inside = (keys < seqlen_k)[:, None]  # [BLOCK_N, 1]
        k = tl.load(k_ptrs, mask=inside, other=0.0)
        v = tl.load(v_ptrs, mask=inside, other=0.0)
    elif PADDED:
        inside = (d < head_dim)[None, :]  # [1, HEAD_DIM]
        k = tl.load(k_ptrs, mask=inside, other=0.0)
        v = tl.load(v_ptrs, mask=inside, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)

    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N] fp32
    if MASKED:
        if WINDOWED:
            visible = (keys[None, :] >= key_begin[:, None]) & (keys[None, :] < key_end[:, None])
        else:
            visible = (keys < seqlen_k)[None, :]
        s = tl.where(visible, s, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(s, 1))  # [BLOCK_M]
    shift = new_max
    if MASKED:  # a row that has seen no key yet has no finite maximum: -inf - -inf is NaN
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # [BLOCK_M]
    # Scaled after the subtraction, so that no rounding of a large maximum reaches the exponent.
    p = tl.exp2((s - shift[:, None]) * exponent_scale)  # [BLOCK_M, BLOCK_N]
    decay = tl.exp2((row_max - shift) * exponent_scale)  # [BLOCK_M]
    row_sum = row_sum * decay + tl.sum(p, 1)
    acc = acc * decay[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)  # [BLOCK_M, HEAD_DIM]
    return acc, row_sum, new_max


@triton.jit
def attention_forward(
    q,
    k,
    v,
    out,
    lse,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_outb,
    stride_outh,
    stride_outs,
    stride_lseb,
    stride_lseh,
    batch,
    heads_q,
    heads_k,
    seqlen_q,
    seqlen_k,
    head_dim,
    has_lse,
    scale,
    window_low,
    window_high,
    HEAD_DIM: tl.constexpr,
    TF32: tl.constexpr,
    PADDED: tl.constexpr,
    WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """out = softmax(scale q k^T + mask) v and lse, the natural log of the softmax's denominator.

    HEAD_DIM is the tile that holds head_dim; PADDED says that it may be larger. WINDOWED: query
    i sees key j when window_low <= j - i <= window_high.
    """
    PRECISION: tl.constexpr = "tf32" if TF32 else "ieee"

    # Programs in flight at a time share few heads, so K and V stay in the L2 cache.
    tiles_m = _tiles(seqlen_q, BLOCK_M)
    pid = tl.program_id(0)
    tile_m = pid % tiles_m
    if WINDOWED:
        tile_m = tiles_m - 1 - tile_m  # causal rows grow longer: longest first
    head = (pid // tiles_m) % heads_q
    b = (pid // tiles_m // heads_q).to(tl.int64)
    head_q = head.to(tl.int64)
    head_k = (head // (heads_q // heads_k)).to(tl.int64)

    row_first = tile_m * BLOCK_M
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, HEAD_DIM)
    rows = row_first + m  # [BLOCK_M]
    valid = (rows < seqlen_q)[:, None]  # [BLOCK_M, 1]
    if PADDED:
        valid = valid & (d < head_dim)[None, :]  # [BLOCK_M, HEAD_DIM]

    q += b * stride_qb + head_q * stride_qh + row_first.to(tl.int64) * stride_qs
    k += b * stride_kb + head_k * stride_kh
    v += b * stride_vb + head_k * stride_vh

    q_tile = tl.load(q + m[:, None] * stride_qs + d[None, :], mask=valid, other=0.0)
    # The sign of the scale goes into q, exactly: what multiplies (s - max) must be positive, and
    # not 0, for which -inf would become NaN.
    sign = tl.where(scale < 0, -1.0, 1.0)
    q_tile = (q_tile.to(tl.float32) * sign).to(q_tile.dtype)  # [BLOCK_M, HEAD_DIM]
    magnitude = tl.abs(scale)
    exponent_scale = tl.maximum(magnitude * LOG2_E, 1e-30)

    # Tiles of keys: [full_begin, full_end) are visible as a whole, and of [begin, end) the others
    # in part. All numbers are clamped to [0, seqlen_k], in 64 bits, before they are narrowed.
    if WINDOWED:
        low = window_low.to(tl.int64)
        beyond = window_high.to(tl.int64) + 1
        row_last = row_first + tl.minimum(seqlen_q - row_first, BLOCK_M) - 1
        key_begin = _clamp(rows + low, seqlen_k)  # [BLOCK_M]
        key_end = _clamp(rows + beyond, seqlen_k)  # [BLOCK_M]
        begin = _clamp(row_first + low, seqlen_k) // BLOCK_N
        end = _tiles(_clamp(row_last + beyond, seqlen_k), BLOCK_N)
        full_begin = _tiles(_clamp(row_last + low, seqlen_k), BLOCK_N)
        full_end = _clamp(row_first + beyond, seqlen_k) // BLOCK_N
        end = tl.maximum(begin, end)
        full_begin = tl.minimum(full_begin, end)
        full_end = tl.maximum(full_begin, full_end)
    else:
        key_begin = 0
        key_end = seqlen_k
        begin = 0
        end = _tiles(seqlen_k, BLOCK_N)
        full_begin = 0
        full_end = seqlen_k // BLOCK_N

    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    n = tl.arange(0, BLOCK_N)

    for tile_n in range(full_begin, full_end):
        key_first = tile_n * BLOCK_N
        acc, row_sum, row_max = _attend(
            q_tile,
            k + key_first.to(tl.int64) * stride_ks,
            v + key_first.to(tl.int64) * stride_vs,
            stride_ks,
            stride_vs,
            key_first + n,
            key_begin,
            key_end,
            seqlen_k,
            head_dim,
            exponent_scale,
            acc,
            row_sum,
            row_max,
            HEAD_DIM,
            BLOCK_N,
            PADDED,
            WINDOWED,
            False,
            PRECISION,
        )
    # Left and right edges in one loop, which skips over the full tiles between them.
    for edge in range(begin, end - (full_end - full_begin)):
        tile_n = edge + tl.where(edge < full_begin, 0, full_end - full_begin)
        key_first = tile_n * BLOCK_N
        acc, row_sum, row_max = _attend(
            q_tile,
            k + key_first.to(tl.int64) * stride_ks,
            v + key_first.to(tl.int64) * stride_vs,
            stride_ks,
            stride_vs,
            key_first + n,
            key_begin,
            key_end,
            seqlen_k,
            head_dim,
            exponent_scale,
            acc,
            row_sum,
            row_max,
            HEAD_DIM,
            BLOCK_N,
            PADDED,
            WINDOWED,
            True,
            PRECISION,
        )

    empty = row_sum == 0.0  # [BLOCK_M]: rows that see no key
    row_sum = tl.where(empty, 1.0, row_sum)
    inverse = 1.0 / row_sum
    acc = tl.where(empty[:, None], 0.0, acc * inverse[:, None])  # [BLOCK_M, HEAD_DIM]
    out += b * stride_outb + head_q * stride_outh + row_first.to(tl.int64) * stride_outs
    out_ptrs = out + m[:, None] * stride_outs + d[None, :]  # [BLOCK_M, HEAD_DIM]
    tl.store(out_ptrs, acc.to(out.dtype.element_ty), mask=valid)
    if has_lse != 0:
        lse += b * stride_lseb + head_q * stride_lseh + row_first
        value = tl.where(empty, float("-inf"), row_max * magnitude + tl.log(row_sum))
        tl.store(lse + m, value, mask=rows < seqlen_q)


@triton.jit
def _tiles(length, BLOCK: tl.constexpr):
    """Tiles that hold `length` rows; rounding up must not overflow near 2^31."""
    return tl.cdiv(length.to(tl.int64), BLOCK).to(tl.int32)


@triton.jit
def _clamp(x, seqlen_k):
    """Number of a key, from 64 bits into [0, seqlen_k]."""
    return tl.minimum(tl.maximum(x, 0), seqlen_k).to(tl.int32)
