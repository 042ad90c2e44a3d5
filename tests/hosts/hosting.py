"""What the tests of hosts share: running commands, CMake, and things built once for all workers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(
    *command: str | Path,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command in an environment without settings of CMake, aotbuild or Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CMAKE_", "AOTBUILD_", "PYTHON", "LD_"))
    }
    result = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        env={**kept, **(env or {})},
        cwd=cwd,
    )
    output = f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    assert not check or result.returncode == 0, output
    return result


def tool(name: str) -> Path:
    """A program of the environment that runs the tests, or of the system."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"{name} is not installed; `pip install --group test` brings it"
    return Path(found)


def build_project(source: Path, build: Path, *options: str, before: tuple[str, ...] = ()) -> Path:
    """Configures and builds; `before` goes in front of both commands. Returns the build folder."""
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    run(*before, tool("cmake"), "-G", "Ninja", "-S", source, "-B", build, ninja, *options)
    run(*before, tool("cmake"), "--build", build)
    return build


@cache
def offline() -> tuple[str, ...]:
    """Words to put before a command, which cut it off from the network."""
    for words in (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net")):
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
            return words
    nowhere = "http://127.0.0.1:9"  # where namespaces are not allowed; port 9 discards
    return ("env", f"http_proxy={nowhere}", f"https_proxy={nowhere}", f"all_proxy={nowhere}")


def build_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills, once in a run of pytest: workers of xdist share it."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "done").touch()
    return folder


def files_of(folder: Path) -> set[str]:
    """Files and links below a folder, by their paths in it."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
