"""examples/torch_op on torch's CPU build: all but the launch. Its check.py runs on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hosting import EXAMPLES, build_once, build_project
from torch._subclasses.fake_tensor import FakeTensorMode

import aotbuild

SCHEMA = (
    "aotbuild_example::attention(Tensor query, Tensor key, Tensor value, *, "
    "bool is_causal=False, float? scale=None) -> (Tensor out, Tensor logsumexp)"
)


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def make(folder: Path) -> None:
        build_project(
            EXAMPLES / "torch_op",
            folder,
            f"-Daotbuild_DIR={aotbuild.cmake_dir()}",
            f"-DPython_EXECUTABLE={sys.executable}",
        )

    torch.ops.load_library(build_once(tmp_path_factory, "torch_op", make) / "libtorch_op.so")
    return torch.ops.aotbuild_example.attention.default


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # no site-packages
    bare.chmod(0o755)
    options = (f"-Daotbuild_DIR={aotbuild.cmake_dir()}", f"-DPython_EXECUTABLE={bare}")
    with pytest.raises(AssertionError, match=r"has\s+no\s+torch"):
        build_project(EXAMPLES / "torch_op", tmp_path / "build", *options)


def test_a_cpu_tensor_is_refused(attention: Any) -> None:
    q = torch.zeros(1, 2, 8, 64)
    with pytest.raises(NotImplementedError, match="expected tensors on a GPU, got cpu"):
        attention(q, q, q)


def test_wrong_dimensions_are_refused(attention: Any) -> None:
    q = torch.zeros(2, 8, 64, device="meta")
    with pytest.raises(ValueError, match=r"head_dim\), got 3 dimensions"):
        attention(q, q, q)


def test_its_schema(attention: Any) -> None:
    assert str(attention._schema) == SCHEMA
    assert torch.Tag.pt2_compliant_tag in attention.tags


def test_shapes_of_gpu_tensors_without_a_gpu(attention: Any) -> None:
    with FakeTensorMode():
        q = torch.empty(2, 8, 300, 64, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        k = torch.empty(2, 300, 17, 64, dtype=torch.bfloat16, device="cuda")
        out, lse = attention(q, k, k)
    assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
    assert out.stride() == q.stride()
    assert (lse.shape, lse.dtype, lse.device) == (q.shape[:3], torch.float32, q.device)


def test_it_is_one_node_of_a_compiled_graph(attention: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attention(q, k, v, is_causal=True)[0] * 2

    length = torch.export.Dim("length")
    arguments = tuple(torch.zeros(2, 4, 8, 64) for _ in range(3))
    exported = torch.export.export(Model(), arguments, dynamic_shapes=[{2: length}] * 3)
    calls = [node for node in exported.graph.nodes if node.target is attention]
    assert len(calls) == 1
    (out,) = exported.graph.output_node().args[0]
    assert str(out.meta["val"].shape[2]) == str(calls[0].args[0].meta["val"].shape[2])


def test_a_gradient_is_not_left_out_in_silence(attention: Any) -> None:
    q = torch.zeros(1, 2, 8, 64, device="meta", requires_grad=True)
    out, _ = attention(q, q, q)
    with pytest.raises(RuntimeError, match="derivative for aotbuild_example::attention"):
        out.sum().backward()
