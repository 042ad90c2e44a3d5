"""aotbuild.attention and its neighbours, without a GPU: arguments, borrowing, streams, errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import aotbuild
from aotbuild import _native, runtime
from aotbuild.errors import LaunchError, NotServedError, Status, launch_error

if TYPE_CHECKING:
    from conftest import Recorder

UNLIMITED = _native.UNLIMITED
UPPER_LEFT, LOWER_RIGHT = _native.ALIGN_UPPER_LEFT, _native.ALIGN_LOWER_RIGHT


def qkv(seqlen_q: int = 5, seqlen_k: int = 5, dtype: torch.dtype = torch.float16) -> list[Any]:
    return [
        torch.zeros(2, heads, seqlen, 64, dtype=dtype)
        for heads, seqlen in ((4, seqlen_q), (2, seqlen_k), (2, seqlen_k))
    ]


# ---- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"causal": True},
            r"causal=True is ambiguous with 5 queries and 7 keys.*upper_left.*lower",
        ),
        ({"window": (3, 0)}, r"window=\(3, 0\) is ambiguous"),
        ({"causal": "left"}, "causal: expected 'upper_left' or 'lower_right', got 'left'"),
        ({"align": "right"}, "align: expected"),
        ({"causal": "upper_left", "align": "lower_right"}, "contradict"),
        ({"window": (-1, None)}, r"window: expected None or integers >= 0, got \(-1, None\)"),
        ({"window": (None, 1.5)}, "window: expected"),
        ({"window": (True, None)}, "window: expected"),
    ],
)
def test_contradictory_masks_are_refused(
    options: dict[str, Any], message: str, recorder: Recorder
) -> None:
    with pytest.raises(ValueError, match=message):
        aotbuild.attention(*qkv(5, 7), library=recorder, **options)
    assert recorder.calls == []


def test_wrong_rank_is_refused(recorder: Recorder) -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"q: expected \(batch, heads.*got shape \(4, 5, 64\)"):
        aotbuild.attention(q[0], k, v, library=recorder)


def test_an_array_without_dlpack_is_refused(recorder: Recorder) -> None:
    plain = SimpleNamespace(shape=(1, 1, 1, 16))
    with pytest.raises(TypeError, match="supports DLPack, got SimpleNamespace"):
        aotbuild.attention(plain, plain, plain, library=recorder)


def test_arrays_of_an_unknown_library_need_out_and_lse(recorder: Recorder) -> None:
    q = np.zeros((1, 1, 4, 16), np.float32)
    with pytest.raises(TypeError, match="out: cannot make an array of ndarray; pass one as out="):
        aotbuild.attention(q, q, q, library=recorder)
    with pytest.raises(TypeError, match="pass one as lse="):
        aotbuild.attention(q, q, q, out=np.zeros_like(q), return_lse=True, library=recorder)
    assert recorder.calls == []


def test_a_read_only_output_is_refused() -> None:
    q = np.zeros((1, 1, 4, 16), np.float32)
    out = np.zeros_like(q)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: the tensor is read-only"):
        aotbuild.attention(q, q, q, out=out)


def test_read_only_inputs_are_read() -> None:
    q = np.zeros((1, 1, 4, 16), np.float32)
    q.flags.writeable = False
    # On to the runtime, which has the next complaint: this is no GPU's memory.
    with pytest.raises(LaunchError) as failure:
        aotbuild.attention(q, q, q, out=np.zeros_like(q))
    assert failure.value.status == Status.INVALID_ARGUMENT


def test_host_memory_is_refused_by_the_runtime() -> None:
    with pytest.raises(LaunchError, match="device") as failure:
        aotbuild.attention(*qkv())
    assert failure.value.status == Status.INVALID_ARGUMENT
    assert not isinstance(failure.value, NotServedError)


def test_what_is_not_a_capsule_is_refused() -> None:
    library = _native.Library([], False, [])
    with pytest.raises(ValueError, match="q: expected an unused DLPack capsule"):
        library.query("attention", "forward", {"q": object()}, {}, {})


def test_a_value_that_is_no_number_is_refused() -> None:
    library = _native.Library([], False, [])
    with pytest.raises(TypeError, match="scale: expected int or float, got str"):
        library.query("attention", "forward", {}, {}, {"scale": "1"})


def test_launch_needs_an_output(recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="outputs: expected at least one array"):
        aotbuild.launch("attention", "forward", {}, {"lse": None}, {}, library=recorder)


def test_one_path_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a list of folders, got '/packs'; write \['/pa"):
        aotbuild.Library("/packs")


def test_a_closed_library_is_refused() -> None:
    with aotbuild.Library() as library:
        assert library.describe()
    with pytest.raises(ValueError, match="closed"):
        library.describe()
    library.close()  # again, which is harmless


# ---- What reaches the runtime ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (UNLIMITED, UNLIMITED, UPPER_LEFT)),
        ({"causal": False}, (UNLIMITED, UNLIMITED, UPPER_LEFT)),
        ({"causal": "upper_left"}, (UNLIMITED, 0, UPPER_LEFT)),
        ({"causal": "lower_right"}, (UNLIMITED, 0, LOWER_RIGHT)),
        ({"causal": True, "align": "lower_right"}, (UNLIMITED, 0, LOWER_RIGHT)),
        ({"causal": "lower_right", "window": (9, 4)}, (9, 0, LOWER_RIGHT)),
        ({"window": (None, 4), "align": "lower_right"}, (UNLIMITED, 4, LOWER_RIGHT)),
        ({"window": (4, None), "align": "upper_left"}, (4, UNLIMITED, UPPER_LEFT)),
        ({"window": (None, None)}, (UNLIMITED, UNLIMITED, UPPER_LEFT)),
    ],
)
def test_masks(options: dict[str, Any], expected: tuple[int, int, int], recorder: Recorder) -> None:
    aotbuild.attention(*qkv(5, 7), library=recorder, **options)
    (call,) = recorder.calls
    assert (call["window_left"], call["window_right"], call["window_align"]) == expected


def test_causal_true_is_enough_for_equal_lengths(recorder: Recorder) -> None:
    aotbuild.attention(*qkv(5, 5), causal=True, library=recorder)
    assert recorder.calls[0]["window_right"] == 0


@pytest.mark.parametrize("shape", [(2, 4, 5, 72), (0, 4, 5, 64), (2, 4, 0, 64)])
def test_outputs_are_made_like_q(shape: tuple[int, ...], recorder: Recorder) -> None:
    q = torch.zeros(shape, dtype=torch.bfloat16)
    k = torch.zeros(shape[0], 2, 0, shape[3], dtype=torch.bfloat16)
    out, lse = aotbuild.attention(q, k, k, return_lse=True, library=recorder)
    assert (out.shape, out.dtype) == (q.shape, torch.bfloat16)
    assert (lse.shape, lse.dtype) == (q.shape[:3], torch.float32)
    assert recorder.calls[0]["scale"] == pytest.approx(shape[3] ** -0.5)


def test_without_lse_none_is_asked_for(recorder: Recorder) -> None:
    assert isinstance(aotbuild.attention(*qkv(), library=recorder), torch.Tensor)
    assert recorder.calls[0]["lse"] is None


def test_given_outputs_are_used_and_returned(recorder: Recorder) -> None:
    q, k, v = qkv()
    out, lse = torch.empty_like(q), torch.empty(2, 4, 5)
    results = aotbuild.attention(q, k, v, out=out, lse=lse, return_lse=True, library=recorder)
    assert results[0] is out
    assert results[1] is lse
    assert aotbuild.attention(q, k, v, out=out, lse=lse, library=recorder) is out
    assert recorder.calls[1]["lse"] is not None


def test_scale_stream_and_tf32_are_passed_on(recorder: Recorder) -> None:
    aotbuild.attention(*qkv(), scale=0.3, stream=0x70, allow_tf32=True, library=recorder)
    (call,) = recorder.calls
    assert (call["scale"], call["stream"], call["allow_tf32"]) == (0.3, 0x70, True)


def test_tensors_that_require_gradients_are_lent(recorder: Recorder) -> None:
    q, k, v = (tensor.requires_grad_() for tensor in qkv())
    assert not aotbuild.attention(q, k, v, library=recorder).requires_grad


def test_a_subclass_of_a_tensor_is_a_tensor(recorder: Recorder) -> None:
    q, k, v = qkv()
    out = aotbuild.attention(torch.nn.Parameter(q), k, v, library=recorder)
    assert isinstance(out, torch.Tensor)


def test_backward_makes_gradients_and_a_workspace(recorder: Recorder) -> None:
    q, k, v = qkv(5, 7)
    lse = torch.zeros(2, 4, 5)
    dq, dk, dv = aotbuild.attention_backward(
        q, k, v, q, lse, q, causal="lower_right", scale=0.3, library=recorder
    )
    assert (dq.shape, dk.shape, dv.shape) == (q.shape, k.shape, v.shape)
    assert {dq.dtype, dk.dtype, dv.dtype} == {torch.float16}
    (call,) = recorder.calls
    assert (call["scale"], call["window_right"], call["window_align"]) == (0.3, 0, LOWER_RIGHT)
    assert call["workspace"] is not None


def test_backward_uses_what_is_given(recorder: Recorder) -> None:
    q, k, v = qkv()
    lse, workspace = torch.zeros(2, 4, 5), torch.zeros(64)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    results = aotbuild.attention_backward(
        q, k, v, q, lse, q, dq=dq, dk=dk, dv=dv, workspace=workspace, stream=9, library=recorder
    )
    assert all(got is given for got, given in zip(results, (dq, dk, dv), strict=True))
    assert recorder.calls[0]["stream"] == 9


def test_backward_on_a_stream_needs_a_workspace(recorder: Recorder) -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match="stream= is given without workspace="):
        aotbuild.attention_backward(q, k, v, q, torch.zeros(2, 4, 5), q, stream=9, library=recorder)
    assert recorder.calls == []


def test_backward_of_host_memory_is_refused_by_the_runtime() -> None:
    q, k, v = qkv()
    with pytest.raises(LaunchError, match="device") as failure:
        aotbuild.attention_backward(q, k, v, q, torch.zeros(2, 4, 5), q)
    assert failure.value.status == Status.INVALID_ARGUMENT


def test_launch_passes_names_values_and_workspace(recorder: Recorder) -> None:
    q, k, _ = qkv()
    workspace = torch.empty(256, dtype=torch.uint8)
    aotbuild.launch(
        "attention",
        "forward",
        {"q": q},
        {"out": k, "lse": None},
        {"scale": 0.5, "tf32": 0},
        stream=7,
        workspace=workspace,
        library=recorder,
    )
    family, op, inputs, outputs, values, stream, memory = recorder.calls[0]["launch"]
    assert (family, op, stream, values) == ("attention", "forward", 7, {"scale": 0.5, "tf32": 0})
    assert list(inputs) == ["q"]
    assert outputs["lse"] is None
    assert outputs["out"] is not None
    assert memory is not None


def test_capsules_are_borrowed_not_consumed() -> None:
    library = _native.Library([], True, [])
    capsule = torch.utils.dlpack.to_dlpack(torch.zeros(1, 1, 1, 16))
    for _ in range(2):  # a consumed capsule would be refused as "used" the second time
        with pytest.raises(LaunchError):
            library.query("attention", "forward", {"q": capsule}, {}, {})
    assert '"dltensor"' in repr(capsule)


# ---- Errors and the rest ---------------------------------------------------------------------


def test_status_numbers_are_the_headers() -> None:
    for status in Status:
        prefix = "AOTBUILD_" if status == Status.OK else "AOTBUILD_ERROR_"
        assert _native.status_name(status) == prefix + status.name
    assert _native.status_name(max(Status) + 1) == "unknown status"


@pytest.mark.parametrize("status", [s for s in Status if s != Status.OK])
def test_fallback_cases_have_a_class_of_their_own(status: Status) -> None:
    error = launch_error(int(status), "what happened")
    served = status not in {
        Status.UNSUPPORTED,
        Status.NO_PACK,
        Status.NO_IMAGE,
        Status.NO_DRIVER,
    }
    assert isinstance(error, LaunchError)
    assert isinstance(error, NotServedError) != served
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.status, str(copy)) == (type(error), status, "what happened")


def test_describe_lists_paths_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "zweiter Pfad é"
    monkeypatch.setenv("AOTBUILD_IMAGE_PATH", str(second))
    text = aotbuild.Library([first]).describe("sm_90")
    assert 0 <= text.index(str(first)) < text.index(str(second))
    alone = aotbuild.Library([first], paths_only=True).describe()
    assert str(second) not in alone


def test_image_wheels_come_before_the_users_own_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sys one" / "aotbuild_images" / "gfx950").mkdir(parents=True)
    (tmp_path / "two" / "aotbuild_images").mkdir(parents=True)
    for folder in ("two", "sys one"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("AOTBUILD_IMAGE_PATH", str(tmp_path / "env"))
    path = aotbuild.Library([tmp_path / "given"]).search_path()
    assert [origin for _, origin in path] == [
        "set by API", "AOTBUILD_IMAGE_PATH", "beside the library", "installation prefix",
        "image wheel", "image wheel", "XDG_DATA_HOME",
    ]  # fmt: skip
    wheels = [folder for folder, origin in path if origin == "image wheel"]
    assert wheels == [str(tmp_path / f / "aotbuild_images") for f in ("sys one", "two")]
    assert "aotbuild_images" not in sys.modules
    alone = aotbuild.Library([tmp_path / "given"], paths_only=True)
    assert alone.search_path() == [(str(tmp_path / "given"), "set by API")]


def test_without_image_wheels_none_are_searched() -> None:
    assert "image wheel" not in aotbuild.Library().describe()


def test_default_library_is_one() -> None:
    assert runtime.default_library() is runtime.default_library()


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        _ = aotbuild.atention


def test_every_exported_name_is_there() -> None:
    assert all(getattr(aotbuild, name) for name in aotbuild.__all__)
    assert aotbuild.__version__ == _native.version()


def test_imports_no_array_library_and_no_compiler() -> None:
    code = """
import sys
for name in ("torch", "triton", "cupy", "jax", "numpy", "typer", "rich"):
    sys.modules[name] = None  # importing it fails
import aotbuild
aotbuild.attention
print(aotbuild.describe())
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_library_that_outlives_the_interpreter_is_no_leak() -> None:
    code = """
import threading, aotbuild
library = aotbuild.Library()
threading.Thread(target=lambda held: threading.Event().wait(), args=(library,), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
