"""The GPU drivers, through ctypes: what doctor asks of them, and device memory to try a kernel in.

The runtime opens the same libraries by the same names (driver_cuda.cc, driver_hip.cc); it has no
use for what is here, since it neither counts devices nor allocates.
"""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, ClassVar

from aotbuild.errors import LaunchError, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotbuild.target import Vendor

_SUCCESS = 0
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE and hipErrorNoDevice
_NAME_BYTES = 256


class Driver(ABC):
    """An opened driver library. A call that fails raises LaunchError with the driver's code."""

    vendor: ClassVar[Vendor]
    #: DLPack's number of the device type.
    device_type: ClassVar[int]
    #: What the runtime asks the loader for, in order.
    names: ClassVar[Sequence[str]]
    #: A function that every version has.
    anchor: ClassVar[str]

    def __init__(self) -> None:
        self._library = _open(self.names)

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function that returns a status, 0 for success."""
        if code := self.status(function, *arguments):
            raise LaunchError(Status.DRIVER, f"{function} failed: {self.error_name(code)} ({code})")

    def status(self, function: str, *arguments: object) -> int:
        try:
            found = self._library[function]
        except AttributeError:
            raise LaunchError(
                Status.NO_DRIVER, f"{self.file()} has no function {function}. Update the driver"
            ) from None
        return int(found(*arguments))

    def file(self) -> str:
        """Path of the library, links resolved."""
        info = _Place()
        address = ctypes.cast(self._library[self.anchor], c_void_p)
        ctypes.CDLL(None).dladdr(address, byref(info))
        return os.path.realpath(os.fsdecode(info.file or b""))

    @abstractmethod
    def error_name(self, code: int) -> str: ...

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def count(self) -> int:
        """Number of devices."""

    @abstractmethod
    def device_name(self, number: int) -> str: ...

    @abstractmethod
    def enter(self, number: int) -> None:
        """Makes a device the one of this thread, which the rest works on."""

    @abstractmethod
    def allocate(self, size: int) -> int: ...

    @abstractmethod
    def free(self, address: int) -> None: ...

    @abstractmethod
    def write(self, address: int, data: bytes) -> None: ...

    @abstractmethod
    def read(self, address: int, size: int) -> bytes: ...

    @abstractmethod
    def synchronize(self) -> None: ...


class _Cuda(Driver):
    vendor = "cuda"
    device_type = 2
    names = ("libcuda.so.1",)
    anchor = "cuInit"

    def error_name(self, code: int) -> str:
        name = c_char_p()
        self.status("cuGetErrorName", c_int(code), byref(name))
        return (name.value or b"unknown error").decode()

    def version(self) -> str:
        number = c_int()
        self.call("cuDriverGetVersion", byref(number))
        return f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"

    def count(self) -> int:
        if (code := self.status("cuInit", 0)) == _NO_DEVICE:
            return 0
        if code:
            raise LaunchError(Status.DRIVER, f"cuInit failed: {self.error_name(code)} ({code})")
        number = c_int()
        self.call("cuDeviceGetCount", byref(number))
        return number.value

    def device_name(self, number: int) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self.call("cuDeviceGetName", text, _NAME_BYTES, self._handle(number))
        return text.value.decode()

    def _handle(self, number: int) -> c_int:
        handle = c_int()
        self.call("cuDeviceGet", byref(handle), number)
        return handle

    def enter(self, number: int) -> None:
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(context), self._handle(number))
        self.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> int:
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", c_uint64(address))

    def write(self, address: int, data: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", c_uint64(address), data, c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, c_uint64(address), c_size_t(size))
        return data.raw

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")


class _Hip(Driver):
    vendor = "hip"
    device_type = 10
    names = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
    anchor = "hipGetDeviceCount"

    def error_name(self, code: int) -> str:
        function = self._library.hipGetErrorName
        function.restype = c_char_p
        return bytes(function(code) or b"unknown error").decode()

    def version(self) -> str:
        number = c_int()
        self.call("hipRuntimeGetVersion", byref(number))
        return f"HIP {number.value // 10_000_000}.{number.value // 100_000 % 100}"

    def count(self) -> int:
        number = c_int()
        code = self.status("hipGetDeviceCount", byref(number))
        if code == _NO_DEVICE:
            return 0
        if code:
            name = self.error_name(code)
            raise LaunchError(Status.DRIVER, f"hipGetDeviceCount failed: {name} ({code})")
        return number.value

    def device_name(self, number: int) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self.call("hipDeviceGetName", text, _NAME_BYTES, number)
        return text.value.decode()

    def enter(self, number: int) -> None:
        self.call("hipSetDevice", number)

    def allocate(self, size: int) -> int:
        address = c_void_p()
        self.call("hipMalloc", byref(address), c_size_t(size))
        return address.value or 0

    def free(self, address: int) -> None:
        self.call("hipFree", c_void_p(address))

    def write(self, address: int, data: bytes) -> None:
        self.call("hipMemcpy", c_void_p(address), data, c_size_t(len(data)), 1)  # host to device

    def read(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.call("hipMemcpy", data, c_void_p(address), c_size_t(size), 2)  # device to host
        return data.raw

    def synchronize(self) -> None:
        self.call("hipDeviceSynchronize")


DRIVERS: tuple[type[Driver], ...] = (_Cuda, _Hip)


class _Place(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", c_char_p),
        ("base", c_void_p),
        ("symbol", c_char_p),
        ("address", POINTER(c_char_p)),
    )


def _open(names: Sequence[str]) -> ctypes.CDLL:
    """The first of `names` that the process has already, else the first that can be loaded.

    Raises LaunchError: NO_DRIVER if the loader finds none, DRIVER if one is there and unusable.
    """
    reasons = []
    for mode in (os.RTLD_NOLOAD, 0):
        for name in names:
            library, why = _load(name, mode)
            if library is not None:
                return library
            if mode == 0 and not why.startswith(f"{name}: cannot open shared object file: No such"):
                reasons.append(why)
    if reasons:
        raise LaunchError(Status.DRIVER, "; ".join(reasons))
    raise LaunchError(Status.NO_DRIVER, f"the loader finds no {' or '.join(names)}")


def _load(name: str, mode: int) -> tuple[ctypes.CDLL | None, str]:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOW | mode), ""
    except OSError as error:
        return None, str(error)
