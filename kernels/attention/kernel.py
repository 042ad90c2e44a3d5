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


# ---- Backward ----------------------------------------------------------------------------------
#
# With p = exp(scale q k^T - lse) and delta = sum over D of dout * out:
#     dv = p^T dout    ds = p * (dout v^T - delta)    dq = scale ds k    dk = scale ds^T q
# p is computed again from lse, tile by tile, by two kernels that each own what they write, so
# nothing is added atomically and equal calls give equal bits.


@triton.jit
def attention_backward_delta(
    out,
    dout,
    delta,
    stride_outb,
    stride_outh,
    stride_outs,
    stride_doutb,
    stride_douth,
    stride_douts,
    stride_deltab,
    stride_deltah,
    heads_q,
    seqlen_q,
    head_dim,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """delta[b, h, i] = sum over d of out[b, h, i, d] * dout[b, h, i, d]."""
    tiles_m = _tiles(seqlen_q, BLOCK_M)
    pid = tl.program_id(0)
    row_first = (pid % tiles_m) * BLOCK_M
    head = ((pid // tiles_m) % heads_q).to(tl.int64)
    b = (pid // tiles_m // heads_q).to(tl.int64)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, HEAD_DIM)
    inside = (row_first + m < seqlen_q)[:, None]  # [BLOCK_M, 1]
    if PADDED:
        inside = inside & (d < head_dim)[None, :]  # [BLOCK_M, HEAD_DIM]
    first = row_first.to(tl.int64)
    out += b * stride_outb + head * stride_outh + first * stride_outs
    dout += b * stride_doutb + head * stride_douth + first * stride_douts
    o = tl.load(out + m[:, None] * stride_outs + d[None, :], mask=inside, other=0.0)
    do = tl.load(dout + m[:, None] * stride_douts + d[None, :], mask=inside, other=0.0)
    sums = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # [BLOCK_M]
    delta += b * stride_deltab + head * stride_deltah + row_first
    tl.store(delta + m, sums, mask=row_first + m < seqlen_q)


@triton.jit
def _load_tile(
    pointer,  # to the tile's first row
    stride,
    rows,  # [BLOCK] i32: indices of the tile's rows
    row_begin,  # rows outside [row_begin, row_end) are read as 0 where MASKED
    row_end,
    head_dim,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PADDED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """[BLOCK, HEAD_DIM]"""
    n = tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD_DIM)
    pointers = pointer + n[:, None] * stride + d[None, :]
    if MASKED:
        inside = ((rows >= row_begin) & (rows < row_end))[:, None]  # [BLOCK, 1]
        if PADDED:
            inside = inside & (d < head_dim)[None, :]  # [BLOCK, HEAD_DIM]
        return tl.load(pointers, mask=inside, other=0.0)
    if PADDED:
        return tl.load(pointers, mask=(d < head_dim)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def _load_row_numbers(lse, delta, rows, seqlen_q):
    """lse and delta [BLOCK_M]. A row that sees no key, or does not exist, gets an lse of infinity:
    its weights are exp(-inf) = 0."""
    inside = rows < seqlen_q
    row_lse = tl.load(lse + rows, mask=inside, other=float("inf"))
    row_lse = tl.where(row_lse == float("-inf"), float("inf"), row_lse)
    return row_lse, tl.load(delta + rows, mask=inside, other=0.0)


@triton.jit
def _add_queries(
    k_tile,  # [BLOCK_N, HEAD_DIM]
    v_tile,  # [BLOCK_N, HEAD_DIM]
    q,  # pointer to the tile's first query
    dout,
    lse,  # pointer to the head's first row
    delta,
    stride_qs,
    stride_douts,
    rows,  # [BLOCK_M] i32: indices of the tile's queries
    row_begin,  # the rows that see some key of the tile
    row_end,
    keys,  # [BLOCK_N] i32
    seqlen_q,
    head_dim,
    scale,
    window_low,  # i64
    window_high,
    dk,  # [BLOCK_N, HEAD_DIM] fp32: sum of ds^T q
    dv,  # [BLOCK_N, HEAD_DIM] fp32: sum of p^T dout
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    PADDED: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds one tile of queries to the gradients of a tile of keys."""
    q_tile = _load_tile(
        q,
        stride_qs,
        rows,
        row_begin,
        row_end,
        head_dim,
        HEAD_DIM,
        BLOCK_M,
        PADDED,
        MASKED,
    )  # [BLOCK_M, HEAD_DIM]
    do = _load_tile(
        dout,
        stride_douts,
        rows,
        row_begin,
        row_end,
        head_dim,
        HEAD_DIM,
        BLOCK_M,
        PADDED,
        MASKED,
    )  # [BLOCK_M, HEAD_DIM]
    row_lse, row_delta = _load_row_numbers(lse, delta, rows, seqlen_q)
    s = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]
    p = tl.exp(s * scale - row_lse[None, :])
    dp = tl.dot(v_tile, tl.trans(do), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]
    ds = p * (dp - row_delta[None, :])
    if MASKED and WINDOWED:  # by selection: what is not visible may be NaN
        distance = keys[:, None].to(tl.int64) - rows[None, :]
        visible = (distance >= window_low) & (distance <= window_high)
        visible = visible & (rows < seqlen_q)[None, :]  # [BLOCK_N, BLOCK_M]
        p = tl.where(visible, p, 0.0)
        ds = tl.where(visible, ds, 0.0)
    dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
    dk = tl.dot(ds.to(q_tile.dtype), q_tile, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def attention_backward_dkdv(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dk,
    dv,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_doutb,
    stride_douth,
    stride_douts,
    stride_lseb,
    stride_lseh,
    stride_deltab,
    stride_deltah,
    stride_dkb,
    stride_dkh,
    stride_dks,
    stride_dvb,
    stride_dvh,
    stride_dvs,
    heads_q,
    heads_k,
    seqlen_q,
    seqlen_k,
    head_dim,
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
    """dk and dv of one tile of keys, over all queries of all heads that read them."""
    PRECISION: tl.constexpr = "tf32" if TF32 else "ieee"
    tiles_n = _tiles(seqlen_k, BLOCK_N)
    pid = tl.program_id(0)
    key_first = (pid % tiles_n) * BLOCK_N
    head_k = (pid // tiles_n) % heads_k
    b = (pid // tiles_n // heads_k).to(tl.int64)
    group = heads_q // heads_k

    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD_DIM)
    keys = key_first + n  # [BLOCK_N]
    first = key_first.to(tl.int64)
    k += b * stride_kb + head_k.to(tl.int64) * stride_kh + first * stride_ks
    v += b * stride_vb + head_k.to(tl.int64) * stride_vh + first * stride_vs
    k_tile = _load_tile(
        k, stride_ks, keys, 0, seqlen_k, head_dim, HEAD_DIM, BLOCK_N, PADDED, True
    )  # [BLOCK_N, HEAD_DIM]
    v_tile = _load_tile(
        v, stride_vs, keys, 0, seqlen_k, head_dim, HEAD_DIM, BLOCK_N, PADDED, True
    )  # [BLOCK_N, HEAD_DIM]

    # Tiles of queries: all pairs of [full_begin, full_end) are visible, and of [begin, end) some.
    # Row i sees key j when j - high <= i <= j - low.
    low = window_low.to(tl.int64)
    high = window_high.to(tl.int64)
    if WINDOWED:
        key_last = key_first + tl.minimum(seqlen_k - key_first, BLOCK_N) - 1
        row_begin = _clamp(key_first - high, seqlen_q)
        row_end = _clamp(key_last - low + 1, seqlen_q)
        begin = row_begin // BLOCK_M
        end = tl.maximum(begin, _tiles(row_end, BLOCK_M))
        full_begin = tl.minimum(_tiles(_clamp(key_last - high, seqlen_q), BLOCK_M), end)
        full_end = _clamp(key_first - low + 1, seqlen_q) // BLOCK_M
        full_end = tl.maximum(full_begin, full_end)
    else:
        row_begin = 0
        row_end = seqlen_q
        begin = 0
        end = _tiles(seqlen_q, BLOCK_M)
        full_begin = 0
        full_end = seqlen_q // BLOCK_M

    dk_tile = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    dv_tile = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    for member in range(group):
        head = (head_k * group + member).to(tl.int64)
        q_head = q + b * stride_qb + head * stride_qh
        dout_head = dout + b * stride_doutb + head * stride_douth
        lse_head = lse + b * stride_lseb + head * stride_lseh
        delta_head = delta + b * stride_deltab + head * stride_deltah
        for tile in range(full_begin, full_end):
            row_first = tile * BLOCK_M
            dk_tile, dv_tile = _add_queries(
                k_tile,
                v_tile,
                q_head + row_first.to(tl.int64) * stride_qs,
                dout_head + row_first.to(tl.int64) * stride_douts,
                lse_head,
                delta_head,
                stride_qs,
                stride_douts,
                row_first + m,
                row_begin,
                row_end,
                keys,
                seqlen_q,
                head_dim,
                scale,
                low,
                high,
                dk_tile,
                dv_tile,
                HEAD_DIM,
                BLOCK_M,
                PADDED,
                WINDOWED,
                False,
                PRECISION,
            )
        for edge in range(begin, end - (full_end - full_begin)):
            tile = edge + tl.where(edge < full_begin, 0, full_end - full_begin)
            row_first = tile * BLOCK_M
            dk_tile, dv_tile = _add_queries(
                k_tile,
                v_tile,
                q_head + row_first.to(tl.int64) * stride_qs,
                dout_head + row_first.to(tl.int64) * stride_douts,
                lse_head,
                delta_head,
                stride_qs,
                stride_douts,
                row_first + m,
                row_begin,
                row_end,
                keys,
                seqlen_q,
                head_dim,
                scale,
                low,
                high,
                dk_tile,
                dv_tile,
                HEAD_DIM,
                BLOCK_M,
                PADDED,
                WINDOWED,
                True,
                PRECISION,
            )

    inside = (keys < seqlen_k)[:, None]  # [BLOCK_N, 1]
    if PADDED:
        inside = inside & (d < head_dim)[None, :]  # [BLOCK_N, HEAD_DIM]
    dk += b * stride_dkb + head_k.to(tl.int64) * stride_dkh + first * stride_dks
    dv += b * stride_dvb + head_k.to(tl.int64) * stride_dvh + first * stride_dvs
    dk_ptrs = dk + n[:, None] * stride_dks + d[None, :]
    dv_ptrs = dv + n[:, None] * stride_dvs + d[None, :]
    tl.store(dk_ptrs, (dk_tile * scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv_ptrs, dv_tile.to(dv.dtype.element_ty), mask=inside)


@triton.jit
def _add_keys(
    q_tile,  # [BLOCK_M, HEAD_DIM]
    do,  # [BLOCK_M, HEAD_DIM]
    row_lse,  # [BLOCK_M]
    row_delta,
    k,  # pointer to the tile's first key
    v,
    stride_ks,
    stride_vs,
    keys,  # [BLOCK_N] i32: indices of the tile's keys
    key_begin,  # the keys that some row of the tile sees
    key_end,
    rows,  # [BLOCK_M] i32
    head_dim,
    scale,
    window_low,  # i64
    window_high,
    dq,  # [BLOCK_M, HEAD_DIM] fp32: sum of ds k
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PADDED: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds one tile of keys to the gradient of a tile of queries."""
    k_tile = _load_tile(
        k,
        stride_ks,
        keys,
        key_begin,
        key_end,
        head_dim,
        HEAD_DIM,
        BLOCK_N,
        PADDED,
        MASKED,
    )  # [BLOCK_N, HEAD_DIM]
    v_tile = _load_tile(
        v,
        stride_vs,
        keys,
        key_begin,
        key_end,
        head_dim,
        HEAD_DIM,
        BLOCK_N,
        PADDED,
        MASKED,
    )  # [BLOCK_N, HEAD_DIM]
    s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
    p = tl.exp(s * scale - row_lse[:, None])
    dp = tl.dot(do, tl.trans(v_tile), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
    ds = p * (dp - row_delta[:, None])
    if MASKED:  # by selection: what is not visible may be NaN
        visible = (keys < key_end)[None, :]
        if WINDOWED:
            distance = keys[None, :].to(tl.int64) - rows[:, None]
            visible = visible & (distance >= window_low) & (distance <= window_high)
        ds = tl.where(visible, ds, 0.0)
    return tl.dot(ds.to(k_tile.dtype), k_tile, dq, input_precision=PRECISION)


@triton.jit
def attention_backward_dq(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dq,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_doutb,
    stride_douth,
    stride_douts,
    stride_lseb,
    stride_lseh,
    stride_deltab,
    stride_deltah,
    stride_dqb,
    stride_dqh,
    stride_dqs,
    heads_q,
    heads_k,
    seqlen_q,
    seqlen_k,
    head_dim,
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
    """dq of one tile of queries, over the keys that they see."""
    PRECISION: tl.constexpr = "tf32" if TF32 else "ieee"
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
    first = row_first.to(tl.int64)
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD_DIM)
    rows = row_first + m  # [BLOCK_M]
    q += b * stride_qb + head_q * stride_qh + first * stride_qs
    dout += b * stride_doutb + head_q * stride_douth + first * stride_douts
    k += b * stride_kb + head_k * stride_kh
    v += b * stride_vb + head_k * stride_vh
    q_tile = _load_tile(
        q, stride_qs, rows, 0, seqlen_q, head_dim, HEAD_DIM, BLOCK_M, PADDED, True
    )  # [BLOCK_M, HEAD_DIM]
    do = _load_tile(
        dout, stride_douts, rows, 0, seqlen_q, head_dim, HEAD_DIM, BLOCK_M, PADDED, True
    )  # [BLOCK_M, HEAD_DIM]
    lse += b * stride_lseb + head_q * stride_lseh
    delta += b * stride_deltab + head_q * stride_deltah
    row_lse, row_delta = _load_row_numbers(lse, delta, rows, seqlen_q)

    # As in the forward kernel.
    low = window_low.to(tl.int64)
    high = window_high.to(tl.int64)
    if WINDOWED:
        row_last = row_first + tl.minimum(seqlen_q - row_first, BLOCK_M) - 1
        key_begin = _clamp(row_first + low, seqlen_k)
        key_end = _clamp(row_last + high + 1, seqlen_k)
        begin = key_begin // BLOCK_N
        end = tl.maximum(begin, _tiles(key_end, BLOCK_N))
        full_begin = tl.minimum(_tiles(_clamp(row_last + low, seqlen_k), BLOCK_N), end)
        full_end = _clamp(row_first + high + 1, seqlen_k) // BLOCK_N
        full_end = tl.maximum(full_begin, full_end)
    else:
        key_begin = 0
        key_end = seqlen_k
        begin = 0
        end = _tiles(seqlen_k, BLOCK_N)
        full_begin = 0
        full_end = seqlen_k // BLOCK_N

    dq_tile = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for tile_n in range(full_begin, full_end):
        key_first = tile_n * BLOCK_N
        dq_tile = _add_keys(
            q_tile,
            do,
            row_lse,
            row_delta,
            k + key_first.to(tl.int64) * stride_ks,
            v + key_first.to(tl.int64) * stride_vs,
            stride_ks,
            stride_vs,
            key_first + n,
            key_begin,
            key_end,
            rows,
            head_dim,
            scale,
            low,
            high,
            dq_tile,
            HEAD_DIM,
            BLOCK_N,
            PADDED,
            WINDOWED,
            False,
            PRECISION,
        )
    for edge in range(begin, end - (full_end - full_begin)):
        tile_n = edge + tl.where(edge < full_begin, 0, full_end - full_begin)
        key_first = tile_n * BLOCK_N
        dq_tile = _add_keys(
            q_tile,
            do,
            row_lse,
            row_delta,
            k + key_first.to(tl.int64) * stride_ks,
            v + key_first.to(tl.int64) * stride_vs,
            stride_ks,
            stride_vs,
            key_first + n,
            key_begin,
            key_end,
            rows,
            head_dim,
            scale,
            low,
            high,
            dq_tile,
            HEAD_DIM,
            BLOCK_N,
            PADDED,
            WINDOWED,
            True,
            PRECISION,
        )

    inside = (rows < seqlen_q)[:, None]  # [BLOCK_M, 1]
    if PADDED:
        inside = inside & (d < head_dim)[None, :]  # [BLOCK_M, HEAD_DIM]
    dq += b * stride_dqb + head_q * stride_dqh + first * stride_dqs
    dq_ptrs = dq + m[:, None] * stride_dqs + d[None, :]
    tl.store(dq_ptrs, (dq_tile * scale).to(dq.dtype.element_ty), mask=inside)
