"""Array libraries: how to borrow their arrays, make new ones, and find the stream to launch on.

No array library is imported here: an array that is passed in shows that its library is loaded.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    #: Launches on a stream, writing the tensors of the capsules.
    Call = Callable[[int, Sequence[CapsuleType]], None]

#: DLPack's number for the default stream, by device type (kDLCUDA, kDLROCM). Host memory has none.
_DEFAULT_STREAM = {2: 1, 10: 0}


@dataclass(frozen=True)
class Output:
    """An array to be written: the one that was given, or else one to make, shaped like this."""

    name: str
    given: Any
    shape: tuple[int, ...]
    float32: bool = False


class ArrayLibrary(ABC):
    """The default serves libraries with mutable arrays and a current stream."""

    writable = True

    def lend(self, array: Any, stream: int) -> CapsuleType:
        """An array of this library as a DLPack capsule, to use on `stream`, one of its own."""
        return _import(array, stream)

    @abstractmethod
    def empty(self, like: Any, output: Output) -> Any:
        """A new array on the device of `like`, and of its dtype unless `output.float32`."""

    @abstractmethod
    def current_stream(self, array: Any) -> int:
        """Handle of the current stream of the array's device."""

    def run(
        self, like: Any, outputs: Sequence[Output], stream: int | None, call: Call
    ) -> list[Any]:
        """Makes the outputs that are missing, runs `call`, and returns all of them."""
        arrays = [self.empty(like, o) if o.given is None else o.given for o in outputs]
        on = self.current_stream(like) if stream is None else stream
        call(on, [lend(array, on, self, write=True) for array in arrays])
        return arrays


class _Torch(ArrayLibrary):
    def lend(self, array: Any, stream: int) -> CapsuleType:
        # Not __dlpack__: that refuses tensors of a device other than the current one.
        torch = sys.modules["torch"]
        if array.is_neg():
            raise ValueError("the tensor has torch's negative bit set; pass tensor.resolve_neg()")
        capsule: CapsuleType = torch.utils.dlpack.to_dlpack(array.detach())
        return capsule

    def empty(self, like: Any, output: Output) -> Any:
        torch = sys.modules["torch"]
        dtype = torch.float32 if output.float32 else like.dtype
        return torch.empty(output.shape, dtype=dtype, device=like.device)

    def current_stream(self, array: Any) -> int:
        torch = sys.modules["torch"]
        if array.device.type != "cuda":
            return 0  # no GPU tensor: the runtime says what it expects
        return int(torch.cuda.current_stream(array.device).cuda_stream)


class _Cupy(ArrayLibrary):
    def lend(self, array: Any, stream: int) -> CapsuleType:
        capsule: CapsuleType = array.__dlpack__(stream=-1)
        return capsule

    def empty(self, like: Any, output: Output) -> Any:
        cupy = sys.modules["cupy"]
        with like.device:
            return cupy.empty(output.shape, dtype="float32" if output.float32 else like.dtype)

    def current_stream(self, array: Any) -> int:
        cupy = sys.modules["cupy"]
        with array.device:
            return int(cupy.cuda.get_current_stream().ptr)


class _Jax(ArrayLibrary):
    """JAX has neither writable arrays nor streams to launch on, but importing an array through
    DLPack has both: `from_dlpack` names a stream, hands it to the producer, and orders the new
    array's users after the work on that stream. So the outputs are imported from a producer
    that launches when it is asked for its capsule."""

    writable = False

    def empty(self, like: Any, output: Output) -> Any:
        jax = sys.modules["jax"]
        dtype = "float32" if output.float32 else like.dtype
        return jax.numpy.empty(output.shape, dtype=dtype, device=like.device)

    def current_stream(self, array: Any) -> int:
        raise TypeError(
            "JAX has no current stream, and its arrays are not written: pass outputs of another "
            "library"
        )

    def run(
        self, like: Any, outputs: Sequence[Output], stream: int | None, call: Call
    ) -> list[Any]:
        if stream is not None:
            raise TypeError("JAX chooses the stream itself; leave stream= away")
        for output in outputs:
            if output.given is not None:
                raise _immutable(output.given)
        jax = sys.modules["jax"]
        if isinstance(like, jax.core.Tracer):
            raise TypeError("aotbuild cannot be traced by JAX; call it outside jit, grad and vmap")
        buffers = [self.empty(like, output) for output in outputs]

        def launch(on: int | None) -> None:
            call(on or 0, [buffer.__dlpack__(stream=on) for buffer in buffers])

        first = jax.dlpack.from_dlpack(_Producer(buffers[0], launch))
        # Each import may name another stream; `first` exists when the launch is done.
        rest = [
            jax.dlpack.from_dlpack(_Producer(buffer, lambda on: first.__dlpack__(stream=on)))
            for buffer in buffers[1:]
        ]
        return [first, *rest]


@dataclass(frozen=True)
class _Producer:
    """Stands for `buffer` in an import, and puts work on the importer's stream first."""

    buffer: Any
    before: Callable[[int | None], object]

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.buffer.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> CapsuleType:
        self.before(stream)
        capsule: CapsuleType = self.buffer.__dlpack__(stream=stream, **options)
        return capsule


class _Other(ArrayLibrary):
    """Any other producer of DLPack capsules: launches on the default stream of the device."""

    def empty(self, like: Any, output: Output) -> Any:
        raise TypeError(
            f"{output.name}: cannot make an array of {type(like).__qualname__}; pass one as "
            f"{output.name}= (arrays of torch, CuPy and JAX are made by themselves)"
        )

    def current_stream(self, array: Any) -> int:
        return 0


_OTHER = _Other()
_LIBRARIES: dict[str, ArrayLibrary] = {
    "torch": _Torch(),
    "cupy": _Cupy(),
    "jax": _Jax(),
    "jaxlib": _Jax(),
}


def library_of(array: Any) -> ArrayLibrary:
    """The library that an array belongs to. Subclasses, in whatever module, belong to it too."""
    for base in type(array).__mro__:
        library = _LIBRARIES.get(base.__module__.partition(".")[0])
        if library is not None:
            return library
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"expected an array that supports DLPack, got {type(array).__qualname__}")
    return _OTHER


def lend(array: Any, stream: int, owner: ArrayLibrary, *, write: bool = False) -> CapsuleType:
    """A capsule to use `array` from on `stream`, which is a stream of `owner`.

    The owner's arrays are lent without synchronisation, since a launch follows what is on their
    stream; those of another library are first ordered before `stream`, as DLPack has it.
    """
    library = library_of(array)
    if write and not library.writable:
        raise _immutable(array)
    return library.lend(array, stream) if library is owner else _import(array, stream)


def _immutable(array: Any) -> TypeError:
    return TypeError(
        f"{type(array).__qualname__} is immutable and cannot be written; leave it away, or pass an "
        "array of another library"
    )


def _import(array: Any, stream: int) -> CapsuleType:
    """Asks for a capsule as DLPack's consumers do, with the read-only flag where it is known."""
    device_type = array.__dlpack_device__()[0]
    default = _DEFAULT_STREAM.get(int(device_type))
    on = None if default is None else stream or default
    capsule: CapsuleType
    try:
        capsule = array.__dlpack__(stream=on, max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = array.__dlpack__(stream=on)
    return capsule
