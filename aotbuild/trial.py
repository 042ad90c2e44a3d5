"""A trial launch: attention on small random input, on one GPU, checked against its definition.

It takes the way of every call from Python, except that the arrays are made here, by the driver:
a machine that has a GPU and this package has all that a trial needs.
"""

from __future__ import annotations

import array
import ctypes
import math
import random
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

from aotbuild.drivers import DRIVERS, Driver
from aotbuild.errors import LaunchError, Status

if TYPE_CHECKING:
    from typing_extensions import CapsuleType, Self

    from aotbuild.machine import Device
    from aotbuild.runtime import Library

Shape = tuple[int, ...]

#: Bounds of ||got - want|| / ||want|| for out, by dtype, and of |got - want| / max(1, |want|) for
#: lse: those of tests/gpu.
BOUNDS = {"fp16": 1e-3, "bf16": 8e-3, "fp32": 1e-5}
LSE_BOUND = 1e-5

# Nothing is a multiple of a block; several query heads share a key head; there is a mask.
_HEADS_Q, _HEADS_K, _SEQLEN_Q, _SEQLEN_K, _HEAD_DIM = 4, 2, 37, 53, 64
_SHAPE_Q = (1, _HEADS_Q, _SEQLEN_Q, _HEAD_DIM)
_SHAPE_K = (1, _HEADS_K, _SEQLEN_K, _HEAD_DIM)
#: Outputs are filled with this, which is NaN in every dtype, and so is what lies behind them.
_POISON = b"\xff"
_GUARD_BYTES = 256


@dataclass(frozen=True)
class Trial:
    """What a launch came to. `error` says what went wrong before there was anything to compare."""

    dtype: str
    out_error: float = math.nan
    lse_error: float = math.nan
    error: str = ""

    @property
    def passed(self) -> bool:
        within = self.out_error <= BOUNDS[self.dtype] and self.lse_error <= LSE_BOUND
        return within and not self.error  # NaN is not within


@dataclass(frozen=True)
class Tried:
    """What was launched on a device."""

    device: Device
    trials: tuple[Trial, ...]


def try_devices(devices: Iterable[Device]) -> tuple[Tried, ...]:
    """One launch for each device and dtype, with the packs of the default search path."""
    from aotbuild.runtime import Library

    drivers: dict[str, Driver] = {}
    tried = []
    with Library() as library:
        for device in devices:
            if device.vendor not in drivers:
                drivers[device.vendor] = next(d for d in DRIVERS if d.vendor == device.vendor)()
            trials = try_attention(drivers[device.vendor], device.number, library)
            tried.append(Tried(device, trials))
    return tuple(tried)


def try_attention(driver: Driver, number: int, library: Library) -> tuple[Trial, ...]:
    """One launch for each dtype on device `number`."""
    return tuple(_try(driver, number, library, dtype) for dtype in BOUNDS)


def _try(driver: Driver, number: int, library: Library, dtype: str) -> Trial:
    try:
        return _launch(driver, number, library, dtype)
    except LaunchError as error:
        return Trial(dtype, error=str(error))


def _launch(driver: Driver, number: int, library: Library, dtype: str) -> Trial:
    from aotbuild.runtime import attention

    q, k, v = (
        _random(shape, dtype, seed) for seed, shape in enumerate((_SHAPE_Q, *[_SHAPE_K] * 2))
    )
    driver.enter(number)
    with _Memory(driver, number) as make:
        inputs = [
            make(shape, dtype, values)
            for shape, values in ((_SHAPE_Q, q), (_SHAPE_K, k), (_SHAPE_K, v))
        ]
        out, lse = make(_SHAPE_Q, dtype), make(_SHAPE_Q[:3], "fp32")
        attention(*inputs, causal="lower_right", out=out, lse=lse, return_lse=True, library=library)
        driver.synchronize()
        got_out, got_lse = out.read(), lse.read()
    for name, got in (("out", got_out), ("lse", got_lse)):
        if missing := sum(map(math.isnan, got)):
            return Trial(
                dtype, error=f"{missing} of {len(got)} elements of {name} are NaN or unwritten"
            )
    want_out, want_lse = _reference(q, k, v)
    return Trial(dtype, _relative(got_out, want_out), _largest(got_lse, want_lse))


class _Memory:
    """Makes arrays, and frees them together."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver, self._number = driver, number
        self._addresses: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(LaunchError):  # after a fault nothing can be freed; the fault is what to tell
            for address in self._addresses:
                self._driver.free(address)

    def __call__(self, shape: Shape, dtype: str, values: Sequence[float] = ()) -> _DeviceArray:
        size = math.prod(shape) * _BITS[dtype] // 8
        address = self._driver.allocate(size + _GUARD_BYTES)
        self._addresses.append(address)
        content = _encode(values, dtype) if values else _POISON * size
        self._driver.write(address, content + _POISON * _GUARD_BYTES)
        return _DeviceArray(self._driver, self._number, address, shape, dtype)


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_CAPSULE_NAME = b"dltensor"
_CODES = {"fp16": 2, "bf16": 4, "fp32": 2}
_BITS = {"fp16": 16, "bf16": 16, "fp32": 32}


class _DeviceArray:
    """A compact array in device memory, lent by DLPack."""

    def __init__(self, driver: Driver, number: int, address: int, shape: Shape, dtype: str) -> None:
        self.shape = shape
        self._driver, self._dtype = driver, dtype
        self._sizes = (ctypes.c_int64 * len(shape))(*shape)
        self._tensor = _Tensor(
            address, driver.device_type, number, len(shape), _CODES[dtype], _BITS[dtype], 1,
            self._sizes, None, 0,
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.device_type, self._tensor.device_id

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> CapsuleType:
        """A capsule on this object's own tensor, with nothing to free: it is only borrowed."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        capsule: CapsuleType = new(ctypes.addressof(self._tensor), _CAPSULE_NAME, None)
        return capsule

    def read(self) -> list[float]:
        """The elements. Raises LaunchError if something was written behind them."""
        size = math.prod(self.shape) * _BITS[self._dtype] // 8
        data = self._driver.read(self._tensor.data, size + _GUARD_BYTES)
        if data[size:] != _POISON * _GUARD_BYTES:
            raise LaunchError(
                Status.INTERNAL, f"the kernel wrote behind the end of an output of {self.shape}"
            )
        return _decode(data[:size], self._dtype)


def _random(shape: Shape, dtype: str, seed: int) -> list[float]:
    """Normally distributed values that the dtype can hold."""
    generator = random.Random(seed)  # noqa: S311 - equal in every trial, and no secret
    values = [generator.gauss(0, 1) for _ in range(math.prod(shape))]
    return _decode(_encode(values, dtype), dtype)


def _encode(values: Sequence[float], dtype: str) -> bytes:
    if dtype == "fp16":
        return struct.pack(f"={len(values)}e", *values)
    if dtype == "fp32":
        return array.array("f", values).tobytes()
    words = array.array("I", array.array("f", values).tobytes())
    rounded = ((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words)  # half to even
    return array.array("H", rounded).tobytes()


def _decode(data: bytes, dtype: str) -> list[float]:
    if dtype == "fp16":
        return list(struct.unpack(f"={len(data) // 2}e", data))
    if dtype == "fp32":
        return array.array("f", data).tolist()
    words = array.array("I", (word << 16 for word in array.array("H", data)))
    return array.array("f", words.tobytes()).tolist()


def _reference(
    q: Sequence[float], k: Sequence[float], v: Sequence[float]
) -> tuple[list[float], list[float]]:
    """out and lse by their definition: query i sees the keys up to i + Sk - Sq."""
    out: list[float] = []
    lse: list[float] = []
    scale = 1 / math.sqrt(_HEAD_DIM)
    for head in range(_HEADS_Q):
        group = head * _HEADS_K // _HEADS_Q
        keys, values = (_rows(x, group, _SEQLEN_K) for x in (k, v))
        for i, query in enumerate(_rows(q, head, _SEQLEN_Q)):
            seen = i + _SEQLEN_K - _SEQLEN_Q + 1
            scores = [scale * sum(map(mul, query, key)) for key in keys[:seen]]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = sum(weights)
            lse.append(top + math.log(total))
            columns = zip(*values[:seen], strict=True)
            out += [sum(map(mul, weights, column)) / total for column in columns]
    return out, lse


def _rows(x: Sequence[float], head: int, length: int) -> list[Sequence[float]]:
    starts = range(head * length * _HEAD_DIM, (head + 1) * length * _HEAD_DIM, _HEAD_DIM)
    return [x[start : start + _HEAD_DIM] for start in starts]


def _relative(got: Sequence[float], want: Sequence[float]) -> float:
    difference = math.sqrt(sum((g - w) ** 2 for g, w in zip(got, want, strict=True)))
    return difference / math.sqrt(sum(w**2 for w in want))


def _largest(got: Sequence[float], want: Sequence[float]) -> float:
    return max(abs(g - w) / max(1.0, abs(w)) for g, w in zip(got, want, strict=True))
