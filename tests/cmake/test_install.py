"""The CMake package: built, installed, moved, and used by a project that knows only its prefix."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cmake_projects import GCC, Toolchain, clang_and_lld, newest_cmake, run

import aotbuild
from aotbuild.families import load_families

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).parent / "consumer"
EXAMPLE = ROOT / "examples" / "cpp_host"


@pytest.fixture(scope="module", params=["oldest cmake, gcc", "newest cmake, clang and lld"])
def toolchain(request: pytest.FixtureRequest) -> Toolchain:
    release = "-DCMAKE_BUILD_TYPE=Release"
    if "oldest" in request.param:
        cmake: Path = request.getfixturevalue("oldest_cmake")
        return Toolchain(cmake, (release, *GCC))
    return Toolchain(newest_cmake(), (release, *clang_and_lld()))


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
    assert all(name.startswith("libaotbuild.so.") or name == "runtime.json" for name in names)


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


def test_the_manifest_says_what_the_runtime_is(prefix: Path) -> None:
    manifest = json.loads((prefix / "share" / "aotbuild" / "runtime.json").read_text())
    assert manifest["version"] == aotbuild.__version__
    assert manifest["abi"] == 0
    assert manifest["cpu"]
    assert manifest["toolkits"] == []  # none was named at this build
    described = {
        f"{family.family.name}.{operator.name}": operator.contract
        for family in load_families((), ())
        for operator in family.family.operators
    }
    assert manifest["contracts"]
    assert manifest["contracts"].items() <= described.items()


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ("runtime", ""),
        ("images", "no component 'images'"),
        ("gfx950", "no component 'gfx950'"),
        ("runtime;kernels", "no component 'kernels'"),
    ],
)
def test_components(
    toolchain: Toolchain, prefix: Path, tmp_path: Path, components: str, message: str
) -> None:
    options = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DAOTBUILD_COMPONENTS={components}")
    result = toolchain.configure(CONSUMER, tmp_path / "build", *options, check=False)
    assert (result.returncode == 0) == (message == ""), result.stderr
    assert message in " ".join(result.stderr.split())


def test_components_are_the_packs_in_the_prefix(
    toolchain: Toolchain, prefix: Path, tmp_path: Path
) -> None:
    shutil.copytree(prefix, tmp_path / "prefix", symlinks=True)
    pack = tmp_path / "prefix" / "share" / "aotbuild" / "images" / "gfx950" / "attention.aotpack"
    pack.parent.mkdir(parents=True)
    pack.write_bytes(b"")
    options = (f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", "-DAOTBUILD_COMPONENTS=images;gfx950")
    result = toolchain.configure(CONSUMER, tmp_path / "build", *options)
    assert f"aotbuild images: [gfx950] {pack.parents[1]}\n" in result.stdout


def test_a_suffixed_build_is_a_package_of_its_own(oldest_cmake: Path, tmp_path: Path) -> None:
    """It shares a prefix with others: of what it installs only the headers have common names."""
    toolchain = Toolchain(oldest_cmake, GCC)
    toolchain.configure(ROOT, tmp_path / "build", "-DAOTBUILD_SONAME_SUFFIX=_plugin")
    toolchain.build(tmp_path / "build")
    prefix = tmp_path / "prefix"
    toolchain.install(tmp_path / "build", prefix)
    paths = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    common = {path for path in paths if "aotbuild_plugin" not in path}
    assert common == {"include/aotbuild/aotbuild.h", "include/aotbuild/aotbuild.hpp"}
    options = (f"-DCMAKE_PREFIX_PATH={prefix}", "-DAOTBUILD_PACKAGE=aotbuild_plugin")
    toolchain.configure(CONSUMER, tmp_path / "consumer", *options)
    toolchain.build(tmp_path / "consumer")
    needed = run("readelf", "-dW", tmp_path / "consumer" / "consumer").stdout
    assert "[libaotbuild_plugin.so.0]" in needed
    run(tmp_path / "consumer" / "consumer")


def test_a_declaration_that_differs_from_a_toolkits_is_a_build_error(
    oldest_cmake: Path, tmp_path: Path
) -> None:
    """The message names the symbol; the comparison is a part of the default build."""
    include = tmp_path / "include"
    include.mkdir()
    header = "#define CUDA_VERSION 13000\ntypedef int CUresult;\nCUresult cuInit(double);\n"
    (include / "cuda.h").write_text(header)
    toolchain = Toolchain(oldest_cmake, GCC)
    build = tmp_path / "build"
    toolchain.configure(ROOT, build, f"-DAOTBUILD_CUDA_INCLUDE_DIRS={include}")
    assert "cuda-13" in (build / "runtime" / "runtime.json").read_text()
    assert "cuda_abi_check.cc" in run(oldest_cmake, "--build", build, "--", "-n").stdout
    target = ("--target", "aotbuild_compare_cuda-13")
    failed = run(oldest_cmake, "--build", build, *target, check=False)
    assert failed.returncode != 0
    assert "static assertion failed: cuInit" in failed.stdout
