"""The blocks of the README's three uses, run as they stand there."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aotbuild
from aotbuild.release import Request, make_release

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def block(kind: str, beginning: str) -> str:
    """The README's only block of this kind that begins so."""
    text = (ROOT / "README.md").read_text("utf-8").partition("## Three uses")[2]
    found = re.findall(rf"^```{kind}\n({re.escape(beginning)}.*?)^```$", text, re.M | re.S)
    assert len(found) == 1, found
    return str(found[0])


def shell(commands: str, folder: Path, **more: str) -> str:
    """What the commands print; `bash -e`, with the tests' own programs on the path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AOTBUILD_")}
    env |= {"PATH": f"{BIN}:{os.environ['PATH']}", **more}
    words = ["bash", "-ec", commands]
    done = subprocess.run(words, cwd=folder, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernel_authors_compile(tmp_path: Path) -> None:
    said = shell(block("", "aotbuild compile"), tmp_path)
    assert (tmp_path / "images/gfx950/attention.aotpack").is_file()
    assert "operator forward, contract 1" in said


def test_cpp_hosts_link(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(program LANGUAGES CXX)\n"
        "add_executable(my_program main.cc)\n" + block("cmake", "find_package")
    )
    (tmp_path / "main.cc").write_text(
        "#include <aotbuild/aotbuild.hpp>\n#include <cstdio>\n"
        "int main() { std::puts(aotbuild_version()); }\n"
    )
    build = f"cmake -G Ninja -B build -Daotbuild_DIR={aotbuild.cmake_dir()} && cmake --build build"
    shell(build, tmp_path)
    assert shell("build/my_program", tmp_path).strip() == aotbuild.__version__


@pytest.fixture
def release(tmp_path: Path, write_hollow_pack: Callable[..., Path]) -> Path:
    """Stands for what will be published: the folder of a release, with a pack for gfx950."""
    write_hollow_pack(tmp_path / "packs", "gfx950")
    expires = dt.datetime.now(dt.timezone.utc).replace(microsecond=0) + dt.timedelta(days=1)
    request = Request(
        version=aotbuild.__version__, serial=1, expires=expires, packs=tmp_path / "packs"
    )
    make_release(request, tmp_path / "release")
    return tmp_path / "release"


def test_python_programs_install_and_fetch(wheel: Path, release: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    cache = [sys.executable, "-m", "pip", "cache", "dir"]  # the caller's: HOME is replaced
    found = subprocess.run(cache, check=True, capture_output=True, text=True).stdout.strip()
    said = shell(
        block("", "pip install aotbuild"),
        home,
        PATH=f"{tmp_path}/venv/bin:{os.environ['PATH']}",
        HOME=str(home),
        XDG_DATA_HOME=str(home / "data"),
        PIP_CACHE_DIR=found,
        PIP_FIND_LINKS=str(wheel.parent),
        AOTBUILD_INDEX=str(release),
    )
    assert (home / "data/aotbuild/images/gfx950/attention.aotpack").is_file()
    assert "1 pack is sound" in said
