"""Running CMake on projects, with one of the versions that are supported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OLDEST_CMAKE = "3.21.4"
GCC = ("-DCMAKE_CXX_COMPILER=g++",)


def clang_and_lld() -> tuple[str, ...]:
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    assert clang, "clang++ is not installed"
    return (f"-DCMAKE_CXX_COMPILER={clang}", "-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld")


def newest_cmake() -> Path:
    found = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "cmake is not installed; `pip install --group test` brings it"
    return Path(found)


def clean_environment() -> dict[str, str]:
    """What tests run in: nothing in it chooses arches, toolkits or settings."""
    chosen = ("CMAKE_", "AOTBUILD_", "CUDA", "ROCM", "HIP_", "PYTORCH_", "TORCH_")
    return {name: value for name, value in os.environ.items() if not name.startswith(chosen)}


def run(
    *command: str | Path,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    preexec: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        env=clean_environment() if environment is None else dict(environment),
        preexec_fn=preexec,
        restore_signals=preexec is None,
    )
    output = f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    assert not check or result.returncode == 0, output
    return result


@dataclass(frozen=True)
class Toolchain:
    """A CMake and the options that name a compiler."""

    cmake: Path
    options: tuple[str, ...] = field(default=())

    def configure(
        self, source: Path, build: Path, *options: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = [self.cmake, "-G", "Ninja", "-S", source, "-B", build, *self.options, *options]
        return run(*command, check=check)

    def build(self, build: Path) -> None:
        run(self.cmake, "--build", build)

    def install(self, build: Path, prefix: Path, *options: str) -> None:
        run(self.cmake, "--install", build, "--prefix", prefix, *options)
