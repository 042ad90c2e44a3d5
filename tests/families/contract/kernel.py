"""Kernels that use every part of Triton's launch contract; each computes something checkable."""

import triton
import triton.language as tl


@triton.jit
def scalars(out, flag, small, big, half, single, double, pair, BLOCK: tl.constexpr):
    """out[0:8] float64: every scalar type as the kernel received it."""
    tl.store(out + 0, flag.to(tl.float64))
    tl.store(out + 1, small.to(tl.float64))
    tl.store(out + 2, big.to(tl.float64))
    tl.store(out + 3, half.to(tl.float64))
    tl.store(out + 4, single.to(tl.float64))
    tl.store(out + 5, double)
    tl.store(out + 6, pair[0].to(tl.float64))
    tl.store(out + 7, pair[1].to(tl.float64))


@triton.jit
def copy_tiles(x, out, stride_outr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = x through a tensor descriptor; one program a tile of ROWS x COLUMNS."""
    row = tl.program_id(0) * ROWS
    column = tl.program_id(1) * COLUMNS
    tile = x.load([row, column])  # (ROWS, COLUMNS), zeros beyond the tensor
    rows = row + tl.arange(0, ROWS)[:, None]
    columns = column + tl.arange(0, COLUMNS)[None, :]
    inside = (rows < x.shape[0]) & (columns < x.shape[1])
    tl.store(out + rows * stride_outr + columns, tile, mask=inside)


@triton.jit
def scratch_copy(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = x through a descriptor made on the device, which takes global scratch on sm_90."""
    source = tl.make_tensor_descriptor(
        x, [rows, columns], [columns.to(tl.int64), 1], [ROWS, COLUMNS]
    )
    row = tl.program_id(0) * ROWS
    tile = source.load([row, 0])  # (ROWS, COLUMNS)
    r = row + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLUMNS)[None, :]
    tl.store(out + r * columns + c, tile, mask=(r < rows) & (c < columns))


@triton.jit
def persistent_scale(x, out, n, factor, BLOCK: tl.constexpr):
    """out = factor * x by a grid that is capped per multiprocessor."""
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
