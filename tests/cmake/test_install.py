"""The CMake package: built, installed, moved, and used by a project that knows only its prefix."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import aotbuild

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).parent / "consumer"
EXAMPLE = ROOT / "examples" / "cpp_host"
OLDEST_CMAKE = "3.21.4"


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("CMAKE_", "AOTBUILD_"))},
    )
    output = f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    assert not check or result.returncode == 0, output
    return result


@dataclass(frozen=True)
class Toolchain:
    """A CMake and the options that name a compiler."""

    cmake: Path
    options: tuple[str, ...]

    def configure(
        self, source: Path, build: Path, *options: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = [self.cmake, "-G", "Ninja", "-S", source, "-B", build, *self.options, *options]
        return run(*command, check=check)

    def build(self, build: Path) -> None:
        run(self.cmake, "--build", build)

    def install(self, build: Path, prefix: Path, *options: str) -> None:
        run(self.cmake, "--install", build, "--prefix", prefix, *options)


def newest_cmake() -> Path:
    found = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "cmake is not installed; `pip install --group test` brings it"
    return Path(found)


def oldest_cmake(folder: Path) -> Path:
    """The oldest CMake that is supported, as a package of its own."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", folder]
    run(*command, f"cmake=={OLDEST_CMAKE}")
    return folder / "cmake" / "data" / "bin" / "cmake"


@pytest.fixture(scope="module", params=["oldest cmake, gcc", "newest cmake, clang and lld"])
def toolchain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Toolchain:
    release = "-DCMAKE_BUILD_TYPE=Release"
    if "oldest" in request.param:
        cmake = oldest_cmake(tmp_path_factory.mktemp("cmake"))
        return Toolchain(cmake, (release, "-DCMAKE_CXX_COMPILER=g++"))
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    assert clang, "clang++ is not installed"
    lld = "-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld"
    return Toolchain(newest_cmake(), (release, f"-DCMAKE_CXX_COMPILER={clang}", lld))


@pytest.fixture(scope="module")
def build(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    toolchain.configure(ROOT, folder)
    toolchain.build(folder)
    return folder


@pytest.fixture(scope="module")
def prefix(toolchain: Toolchain, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed package, after a move to a place that its build did not know."""
    folder = tmp_path_factory.mktemp("prefix")
    toolchain.install(build, folder / "first", "--strip")
    return Path(shutil.move(folder / "first", folder / "moved elsewhere é"))


def test_another_minor_version_is_refused(
    toolchain: Toolchain, prefix: Path, tmp_path: Path
) -> None:
    options = (f"-DCMAKE_PREFIX_PATH={prefix}", "-DAOTBUILD_WANTED=0.2")
    result = toolchain.configure(CONSUMER, tmp_path, *options, check=False)
    assert result.returncode != 0
    assert 'compatible with requested version "0.2"' in result.stderr


def test_a_consumer_builds_and_runs(toolchain: Toolchain, prefix: Path, tmp_path: Path) -> None:
    options = (f"-DCMAKE_PREFIX_PATH={prefix}", "-DAOTBUILD_WANTED=0.1")
    toolchain.configure(CONSUMER, tmp_path, *options)
    toolchain.build(tmp_path)
    text = run(tmp_path / "consumer").stdout
    assert text.startswith(f"aotbuild {aotbuild.__version__}, ABI 0 of 0\n")
    assert str(prefix / "share" / "aotbuild" / "images") in text


def test_a_consumer_of_the_wheel_builds_and_runs(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain.configure(CONSUMER, tmp_path, f"-Daotbuild_DIR={aotbuild.cmake_dir()}")
    toolchain.build(tmp_path)
    text = run(tmp_path / "consumer").stdout
    assert str(Path(aotbuild.cmake_dir()).parents[1] / "aotbuild.images") in text


def test_a_subdirectory_has_no_side_effects(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain.configure(CONSUMER, tmp_path / "build", f"-DAOTBUILD_SOURCE_DIR={ROOT}")
    toolchain.build(tmp_path / "build")
    run(tmp_path / "build" / "consumer")
    toolchain.install(tmp_path / "build", tmp_path / "prefix")
    installed = [path.name for path in (tmp_path / "prefix").rglob("*") if path.is_file()]
    assert installed == ["consumer"]


def test_nothing_installed_names_another_place(prefix: Path, build: Path) -> None:
    files = [path for path in prefix.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for path in files:
        data = path.read_bytes()
        for place in (str(build), str(ROOT), str(prefix.parent / "first")):
            assert place.encode() not in data, f"{path} names {place}"


def test_the_library_is_named_by_its_abi(prefix: Path) -> None:
    (library,) = (path for path in prefix.rglob("libaotbuild.so*") if not path.is_symlink())
    links = {path.name for path in library.parent.glob("libaotbuild.so*")}
    assert {"libaotbuild.so", "libaotbuild.so.0"} <= links
    text = run("readelf", "-dW", library).stdout
    assert re.findall(r"\(SONAME\).*\[(.*)\]", text) == ["libaotbuild.so.0"]
    assert re.findall(r"\(R(?:UN)?PATH\)", text) == []
    assert library.stat().st_size < 1 << 20


def test_the_runtime_component_is_the_library_alone(
    toolchain: Toolchain, build: Path, tmp_path: Path
) -> None:
    toolchain.install(build, tmp_path, "--component", "Runtime")
    names = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert "libaotbuild.so.0" in names
    assert all(name.startswith("libaotbuild.so.") for name in names)


def test_the_example_builds_without_a_gpu_toolkit(
    toolchain: Toolchain, prefix: Path, tmp_path: Path
) -> None:
    toolchain.configure(EXAMPLE, tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    toolchain.build(tmp_path)
    assert run(tmp_path / "cpp_host", "--nonsense", check=False).returncode == 2
    result = run(tmp_path / "cpp_host", tmp_path)
    assert f"aotbuild {aotbuild.__version__}" in result.stdout
    assert str(tmp_path) in result.stdout
    assert "CPP_HOST_VENDOR" in result.stdout
