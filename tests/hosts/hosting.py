"""What the tests of hosts share: building a project, and things built once for all workers."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from cmake_projects import newest_cmake, run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def build_project(source: Path, build: Path, *options: str, before: tuple[str, ...] = ()) -> Path:
    """Configures and builds; `before` goes in front of both commands. Returns the build folder."""
    run(*before, newest_cmake(), "-G", "Ninja", "-S", source, "-B", build, *options)
    run(*before, newest_cmake(), "--build", build)
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


def dynamic(path: Path, tag: str) -> list[str]:
    """Values of a tag in an ELF file's dynamic section."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "-dW", path).stdout)
