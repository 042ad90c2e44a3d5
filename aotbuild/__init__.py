"""Compiles Triton kernels ahead of time into packs, and runs them.

What is here runs kernels and needs neither Triton nor a compiler. It is loaded when first used,
so that the driver, which needs no runtime, works without the native module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aotbuild.errors import AotbuildError, LaunchError, NotServedError, Status

if TYPE_CHECKING:
    from aotbuild.runtime import (
        LaunchInfo,
        Library,
        attention,
        attention_backward,
        cmake_dir,
        describe,
        device_arch,
        launch,
        query,
    )

__all__ = [
    "AotbuildError",
    "LaunchError",
    "LaunchInfo",
    "Library",
    "NotServedError",
    "Status",
    "__version__",
    "attention",
    "attention_backward",
    "cmake_dir",
    "describe",
    "device_arch",
    "launch",
    "query",
]

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # costs more than all the rest

        return version("aotbuild")
    if name not in __all__:
        raise AttributeError(f"module 'aotbuild' has no attribute {name!r}")
    value = getattr(importlib.import_module("aotbuild.runtime"), name)
    globals()[name] = value
    return value
