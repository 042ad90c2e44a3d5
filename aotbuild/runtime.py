"""The runtime for Python: operators on arrays of any library that supports DLPack."""

from __future__ import annotations

import importlib.util
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from aotbuild import _native
from aotbuild.arrays import ArrayLibrary, Output, lend, library_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType, Self

LaunchInfo = _native.LaunchInfo
Align = Literal["upper_left", "lower_right"]

_ALIGN = {
    "upper_left": _native.ALIGN_UPPER_LEFT,
    "lower_right": _native.ALIGN_LOWER_RIGHT,
}


class Library:
    """A search path for packs, and all that was loaded through it.

    `paths` are folders that hold `<arch>/<family>.aotpack`, searched before the default ones, or
    alone if `paths_only`. Thread-safe. `close` unloads its images, when launches have completed;
    a library that is not closed keeps them until the process ends.
    """

    def __init__(
        self, paths: Sequence[str | os.PathLike[str]] = (), *, paths_only: bool = False
    ) -> None:
        if isinstance(paths, (str, os.PathLike)):
            raise TypeError(f"paths: expected a list of folders, got {paths!r}; write [{paths!r}]")
        given = [os.fspath(path) for path in paths]
        self.native = _native.Library(given, paths_only, _wheel_paths())

    def close(self) -> None:
        self.native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def search_path(self) -> list[tuple[str, str]]:
        """The folders searched, in order, which need not exist, each with what put it there."""
        return self.native.search_path()

    def describe(self, arch: str | None = None) -> str:
        """Text of the search path and, for an arch such as "sm_90", of the packs found for it,
        with the reason where one cannot be used."""
        return self.native.describe(arch)


def _wheel_paths() -> list[str]:
    """Folders of the installed image wheels. They share a package that has no code, so asking
    where it lies runs none."""
    spec = importlib.util.find_spec("aotbuild_images")
    return list(spec.submodule_search_locations or ()) if spec is not None else []


_default: Library | None = None
_default_lock = threading.Lock()


def default_library() -> Library:
    """The library that calls use which name none; made at the first one."""
    global _default  # noqa: PLW0603 - one per process, like the packs it maps
    with _default_lock:
        if _default is None:
            _default = Library()
        return _default


def describe(arch: str | None = None) -> str:
    """`Library.describe` of the default library."""
    return default_library().describe(arch)


def device_arch(array: Any) -> str:
    """Arch of the array's device as packs name it: "sm_90", "gfx942"."""
    device_type, device_id = array.__dlpack_device__()
    return _native.device_arch(int(device_type), int(device_id))


def cmake_dir() -> str:
    """Folder of the CMake package: pass it as `-Daotbuild_DIR=...`."""
    return str(Path(__file__).parent / "lib" / "cmake" / "aotbuild")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool | Align | None = None,
    window: tuple[int | None, int | None] | None = None,
    align: Align | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    allow_tf32: bool = False,
    out: Any = None,
    lse: Any = None,
    stream: int | None = None,
    library: Library | None = None,
) -> Any:
    """softmax(scale * q k^T + mask) v, on the GPU that the arrays are on.

    Shapes: q and out (B, Hq, Sq, D); k and v (B, Hk, Sk, D), with Hq a multiple of Hk; lse
    (B, Hq, Sq) in float32. All but lse share one dtype, float16, bfloat16 or float32; 1 <= D <=
    256; B, Sq and Sk may be 0. Any strides, but D contiguous. Gradients do not flow.

    causal: a query sees no key behind its own position. "upper_left" puts query i at key i,
        "lower_right" at key i + Sk - Sq; True is enough where Sq == Sk, which makes them equal.
    window: (left, right), the numbers of keys seen on each side of the query's own position;
        None is no limit. With `causal` the right one is 0.
    align: the alignment of a window that is not causal, where Sq != Sk.
    scale: 1 / sqrt(D) unless given.
    allow_tf32: float32 may be computed in TF32 where the arch has it.
    out, lse: arrays to write; made by the library of q unless given.
    stream: handle of the stream to launch on. Unless given, the current stream of the arrays'
        library; if given, ordering it with the arrays' other uses is the caller's.

    Returns out, or (out, lse) if `return_lse`. A row that sees no key has out 0 and lse -inf; lse
    is in natural logarithm.

    Raises ValueError and TypeError for arguments that contradict themselves, NotServedError if no
    driver, pack or image serves the call, and LaunchError for everything else.
    """
    shape_q, shape_k = _shape("q", q), _shape("k", k)
    problem = _problem(shape_q, shape_k, causal, window, align, scale, allow_tf32)
    wants_lse = return_lse or lse is not None
    outputs = [Output("out", out, shape_q)]
    if wants_lse:
        outputs.append(Output("lse", lse, shape_q[:3], float32=True))
    like = q if out is None else out
    owner = library_of(like)
    native = (library or default_library()).native

    def call(on: int, targets: Sequence[CapsuleType]) -> None:
        native.attention_forward(
            q=lend(q, on, owner),
            k=lend(k, on, owner),
            v=lend(v, on, owner),
            out=targets[0],
            lse=targets[1] if wants_lse else None,
            **problem,
            stream=on,
        )

    results = owner.run(like, outputs, stream, call)
    return (results[0], results[1]) if return_lse else results[0]


def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dout: Any,
    *,
    causal: bool | Align | None = None,
    window: tuple[int | None, int | None] | None = None,
    align: Align | None = None,
    scale: float | None = None,
    allow_tf32: bool = False,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    workspace: Any = None,
    stream: int | None = None,
    library: Library | None = None,
) -> tuple[Any, Any, Any]:
    """Gradients (dq, dk, dv) of `attention`, from dout, the gradient with respect to out.

    q, k, v, out and lse are the arrays of `attention`, and the options those of that call. Shapes:
    dout and dq as q; dk and dv as k, summed over the query heads that share a key head.

    dq, dk, dv: arrays to write; made by the library of q unless given. All of them is written.
    workspace: contiguous float32 array of one dimension, aligned to 256 bytes, of B * Hq * Sq
        elements rounded up to 64; made unless given. It must be given with `stream`, because an
        array made here would return to its library's pool before that stream is done with it.

    Equal calls give equal bits on one device. Raises as `attention`.
    """
    shape_q, shape_k = _shape("q", q), _shape("k", k)
    problem = _problem(shape_q, shape_k, causal, window, align, scale, allow_tf32)
    if stream is not None and workspace is None:
        raise ValueError(
            "stream= is given without workspace=; pass both, since memory made here would be used "
            "again before the stream is done with it"
        )
    like = q if dq is None else dq
    owner = library_of(like)
    native = (library or default_library()).native

    def call(on: int, targets: Sequence[CapsuleType]) -> None:
        native.attention_backward(
            q=lend(q, on, owner),
            k=lend(k, on, owner),
            v=lend(v, on, owner),
            out=lend(out, on, owner),
            lse=lend(lse, on, owner),
            dout=lend(dout, on, owner),
            **problem,
            dq=targets[0],
            dk=targets[1],
            dv=targets[2],
            workspace=targets[3],
            stream=on,
        )

    floats = -(-shape_q[0] * shape_q[1] * shape_q[2] // 64) * 64
    outputs = [
        Output("dq", dq, shape_q),
        Output("dk", dk, shape_k),
        Output("dv", dv, shape_k),
        Output("workspace", workspace, (floats,), float32=True),
    ]
    results = owner.run(like, outputs, stream, call)
    return results[0], results[1], results[2]


def launch(
    family: str,
    op: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    values: Mapping[str, int | float],
    *,
    stream: int | None = None,
    workspace: Any = None,
    library: Library | None = None,
) -> None:
    """Runs any operator of any pack, with tensors and values by the names of its description.

    An optional tensor may be None or left away. `workspace` is a contiguous array of one
    dimension, of at least the size that `query` tells, not used by anything else until the launch
    has completed. `stream` as for `attention`; the library is that of the first output.

    Raises LaunchError and NotServedError.
    """
    owner = library_of(_first(outputs))
    on = owner.current_stream(_first(outputs)) if stream is None else stream
    written = _lend_all(outputs, on, owner, write=True)
    memory = None if workspace is None else lend(workspace, on, owner, write=True)
    native = (library or default_library()).native
    native.launch(family, op, _lend_all(inputs, on, owner), written, dict(values), on, memory)


def query(
    family: str,
    op: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    values: Mapping[str, int | float],
    *,
    library: Library | None = None,
) -> LaunchInfo:
    """What `launch` would run, and the workspace that it would need. Launches nothing."""
    owner = library_of(_first(outputs))
    on = owner.current_stream(_first(outputs))
    native = (library or default_library()).native
    written = _lend_all(outputs, on, owner, write=True)
    return native.query(family, op, _lend_all(inputs, on, owner), written, dict(values))


def _lend_all(
    arrays: Mapping[str, Any], stream: int, owner: ArrayLibrary, *, write: bool = False
) -> dict[str, CapsuleType | None]:
    return {
        name: None if array is None else lend(array, stream, owner, write=write)
        for name, array in arrays.items()
    }


def _first(outputs: Mapping[str, Any]) -> Any:
    for array in outputs.values():
        if array is not None:
            return array
    raise ValueError("outputs: expected at least one array, by the name of the tensor it is for")


def _shape(name: str, array: Any) -> tuple[int, int, int, int]:
    shape = tuple(int(n) for n in array.shape)
    if len(shape) != 4:
        raise ValueError(f"{name}: expected (batch, heads, seqlen, head_dim), got shape {shape}")
    return shape[0], shape[1], shape[2], shape[3]


class _Problem(TypedDict):
    """What forward and backward have in common, in the runtime's terms."""

    scale: float
    window_left: int
    window_right: int
    window_align: int
    allow_tf32: bool


def _problem(
    shape_q: tuple[int, int, int, int],
    shape_k: tuple[int, int, int, int],
    causal: bool | Align | None,
    window: tuple[int | None, int | None] | None,
    align: Align | None,
    scale: float | None,
    allow_tf32: bool,
) -> _Problem:
    left, right, named = window_bounds(shape_q[2], shape_k[2], causal, window, align)
    return {
        "scale": 1 / math.sqrt(max(shape_q[3], 1)) if scale is None else float(scale),
        "window_left": _native.UNLIMITED if left is None else int(left),
        "window_right": _native.UNLIMITED if right is None else int(right),
        "window_align": _ALIGN[named],
        "allow_tf32": allow_tf32,
    }


def window_bounds(
    seqlen_q: int,
    seqlen_k: int,
    causal: bool | Align | None,
    window: tuple[int | None, int | None] | None,
    align: Align | None,
) -> tuple[int | None, int | None, Align]:
    """The mask that the arguments of `attention` name: left and right bound, alignment."""
    left, right = (None, None) if window is None else window
    for bound in (left, right):
        if bound is not None and (isinstance(bound, bool) or int(bound) != bound or bound < 0):
            raise ValueError(f"window: expected None or integers >= 0, got {window!r}")
    if causal:
        right = 0
    named = _alignment(causal, align)
    if named is None and (left, right) != (None, None) and seqlen_q != seqlen_k:
        given = f"causal={causal!r}" if causal else f"window={window!r}"
        raise ValueError(
            f"{given} is ambiguous with {seqlen_q} queries and {seqlen_k} keys: pass "
            "causal='upper_left' (query i at key i) or 'lower_right' (query i at key "
            f"i + {seqlen_k - seqlen_q}), or the same as align= for a window that is not causal"
        )
    return left, right, named or "upper_left"


def _alignment(causal: bool | Align | None, align: Align | None) -> Align | None:
    """The alignment that the arguments name, if they do."""
    for name, value in (("causal", causal), ("align", align)):
        if isinstance(value, str) and value not in _ALIGN:
            raise ValueError(f"{name}: expected 'upper_left' or 'lower_right', got {value!r}")
    if not isinstance(causal, str):
        return align
    if align not in (None, causal):
        raise ValueError(f"causal={causal!r} and align={align!r} contradict each other")
    return causal
