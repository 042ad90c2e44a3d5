"""A package that runs kernels of aotbuild, which its wheel carries."""

from wheel_host._core import describe, version

__all__ = ["describe", "version"]
