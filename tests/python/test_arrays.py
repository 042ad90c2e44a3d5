"""Array libraries: torch for real in test_runtime_face.py; here the others, by stand-ins."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import aotbuild
from aotbuild import arrays

if TYPE_CHECKING:
    from conftest import Recorder


class FakeArray:
    """A GPU array that notes the streams it is exported to."""

    def __init__(self, log: list[Any], name: str, shape: tuple[int, ...]) -> None:
        self.log, self.name, self.shape, self.dtype = log, name, shape, "float16"
        self.device = self

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int | None = None) -> str:
        self.log.append((self.name, stream))
        return f"capsule of {self.name}"


def fake_class(module: str) -> type[FakeArray]:
    return type("Array", (FakeArray,), {"__module__": module})


def test_cupy_arrays_use_cupys_stream(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    log: list[Any] = []
    array = fake_class("cupy")
    made: list[Any] = []

    def empty(shape: tuple[int, ...], dtype: str) -> FakeArray:
        made.append((shape, dtype))
        return array(log, "made", shape)

    cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0x51))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=empty))
    q = array(log, "q", (1, 2, 3, 16))
    aotbuild.attention(q, q, q, return_lse=True, library=recorder)
    assert made == [((1, 2, 3, 16), "float16"), ((1, 2, 3), "float32")]
    assert recorder.calls[0]["stream"] == 0x51
    assert {stream for _, stream in log} == {-1}  # no synchronisation with itself


def test_inputs_of_another_library_are_ordered_before_the_launch(recorder: Recorder) -> None:
    log: list[Any] = []
    q, k, v = (fake_class("elsewhere")(log, name, (1, 1, 1, 16)) for name in "qkv")
    aotbuild.attention(q, k, v, out=torch.zeros(1, 1, 1, 16), stream=0x33, library=recorder)
    assert log == [("q", 0x33), ("k", 0x33), ("v", 0x33)]


def test_an_unknown_library_is_imported_on_the_default_stream(recorder: Recorder) -> None:
    log: list[Any] = []
    q = fake_class("elsewhere")(log, "q", (1, 1, 1, 16))
    aotbuild.attention(q, q, q, out=q, library=recorder)
    assert recorder.calls[0]["stream"] == 0
    assert {stream for _, stream in log} == {1}  # what DLPack calls CUDA's default stream


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A jax whose from_dlpack names another stream at each import, as the real one may."""
    log: list[Any] = []
    streams = iter(range(100, 200))
    array = fake_class("jaxlib._jax")

    def from_dlpack(producer: Any) -> FakeArray:
        assert producer.__dlpack_device__() == (2, 0)
        stream = next(streams)
        log.append(("import", producer.__dlpack__(stream=stream), stream))
        return array(log, "result", producer.buffer.shape)

    module = SimpleNamespace(
        array=lambda name, shape: array(log, name, shape),
        core=SimpleNamespace(Tracer=SimpleNamespace),
        dlpack=SimpleNamespace(from_dlpack=from_dlpack),
        log=log,
        numpy=SimpleNamespace(
            empty=lambda shape, dtype, device: array(log, f"made {dtype}", shape)
        ),
    )
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


def test_jax_launches_once_on_the_stream_of_the_import(
    jax: SimpleNamespace, recorder: Recorder
) -> None:
    q = jax.array("q", (1, 1, 1, 16))
    out, lse = aotbuild.attention(q, q, q, return_lse=True, library=recorder)
    assert (out.shape, lse.shape) == ((1, 1, 1, 16), (1, 1, 1))
    assert [call["stream"] for call in recorder.calls] == [100]
    assert ("q", 100) in jax.log
    # The second output is imported on another stream, which waits for the first output.
    assert jax.log[-3:] == [
        ("result", 101),
        ("made float32", 101),
        ("import", "capsule of made float32", 101),
    ]


def test_jax_arrays_are_not_written(jax: SimpleNamespace, recorder: Recorder) -> None:
    q = jax.array("q", (1, 1, 1, 16))
    with pytest.raises(TypeError, match="immutable"):
        aotbuild.attention(q, q, q, out=q, library=recorder)
    with pytest.raises(TypeError, match="leave stream= away"):
        aotbuild.attention(q, q, q, stream=3, library=recorder)
    with pytest.raises(TypeError, match="JAX has no current stream"):
        aotbuild.launch("attention", "forward", {"q": q}, {"out": q}, {}, library=recorder)
    out = torch.zeros(1, 1, 1, 16)
    with pytest.raises(TypeError, match="immutable"):
        aotbuild.attention(q, q, q, out=out, lse=q, stream=3, library=recorder)
    assert recorder.calls == []


def test_library_of_finds_no_foreign_code_by_name_alone() -> None:
    assert arrays.library_of(fake_class("torchlike")([], "a", (1,))) is arrays.library_of(
        np.zeros(1)
    )
