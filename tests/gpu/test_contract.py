"""Every part of Triton's launch contract, through the generic launch, on a real GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import aotbuild


@pytest.mark.parametrize("flag", [0, 1])
def test_scalars_arrive_as_they_were_given(library: Any, device: Any, flag: int) -> None:
    out = torch.full((8,), float("nan"), dtype=torch.float64, device=device)
    values = {
        "mode": 0, "flag": flag, "small": -7, "big": -(2**40), "half": 1.5, "single": 0.1,
        "double": 0.1, "first": -(2**31), "second": 2**53,
    }  # fmt: skip
    aotbuild.launch("contract", "scalars", {}, {"out": out}, values, library=library)
    single = float(torch.tensor(0.1, dtype=torch.float32))
    assert out.tolist() == [flag, -7, -(2.0**40), 1.5, single, 0.1, -(2.0**31), 2.0**53]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(64, 64), (1, 8), (200, 136), (1000, 72)])
@pytest.mark.parametrize("pad", [0, 8])
def test_tensor_descriptors(
    library: Any, device: Any, dtype: torch.dtype, shape: tuple[int, int], pad: int
) -> None:
    x = torch.randn(shape[0], shape[1] + pad, device=device).to(dtype)[:, : shape[1]]
    out = torch.full(shape, float("nan"), dtype=dtype, device=device)
    aotbuild.launch("contract", "copy_tiles", {"x": x}, {"out": out}, {}, library=library)
    assert torch.equal(out, x)


def test_descriptor_promise_that_does_not_hold_is_an_error(library: Any, device: Any) -> None:
    x = torch.randn(64, 65, device=device)[:, :64]  # rows are no multiple of 16 bytes apart
    out = torch.full((64, 64), 7.0, device=device)
    if aotbuild.device_arch(x) == "sm_80":
        pytest.skip("sm_80 has no hardware descriptors, so nothing is promised there")
    with pytest.raises(aotbuild.NotServedError, match="stride"):
        aotbuild.launch("contract", "copy_tiles", {"x": x}, {"out": out}, {}, library=library)
    assert torch.equal(out, torch.full_like(out, 7.0))


@pytest.mark.parametrize("rows", [1, 32, 1000])
def test_global_scratch_comes_from_the_workspace(library: Any, device: Any, rows: int) -> None:
    x = torch.randn(rows, 64, device=device)
    out = torch.full_like(x, float("nan"))
    call = ("contract", "scratch_copy", {"x": x}, {"out": out}, {})
    info = aotbuild.query(*call, library=library)
    assert info.workspace_size > 0
    with pytest.raises(aotbuild.AotbuildError, match="workspace"):
        aotbuild.launch(*call, library=library)
    assert out.isnan().all()
    size = info.workspace_size + info.workspace_align
    workspace = torch.empty(size, dtype=torch.uint8, device=device)
    aligned = workspace[-workspace.data_ptr() % info.workspace_align :]
    aotbuild.launch(*call, workspace=aligned, library=library)
    assert torch.equal(out, x)


@pytest.mark.parametrize("n", [0, 1, 4096, 4097, 5_000_001])
def test_persistent_cooperative_grid(library: Any, device: Any, n: int) -> None:
    x = torch.randn(n, device=device)
    out = torch.full_like(x, float("nan"))
    values = {"factor": 3.0}
    call = ("contract", "persistent_scale", {"x": x}, {"out": out}, values)
    info = aotbuild.query(*call, library=library)
    aotbuild.launch(*call, library=library)
    assert torch.equal(out, x * 3.0)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    assert info.grid[0] <= 2 * processors


def test_a_name_that_the_operator_does_not_know_is_an_error(library: Any, device: Any) -> None:
    x = torch.randn(100, device=device)
    with pytest.raises(aotbuild.AotbuildError, match="facto"):
        aotbuild.launch(
            "contract", "persistent_scale", {"x": x}, {"out": x}, {"facto": 1.0}, library=library
        )
