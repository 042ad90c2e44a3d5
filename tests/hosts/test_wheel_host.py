"""examples/wheel_host: a wheel that carries the runtime and packs, and runs where no other is."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cmake_projects import clean_environment, run
from hosting import EXAMPLES, dynamic, files_of, offline

import aotbuild

CARRIED = {"lib/libaotbuild.so.0", "lib/aotbuild.images/gfx942/vector.aotpack"}


@dataclass(frozen=True)
class Builder:
    """Builds wheels without a network, in a build tree that they share: most of a build is
    nanobind."""

    folder: Path
    archives: Path

    def wheel(self, name: str, *options: str) -> Path:
        settings = {
            "AOTBUILD_LOCAL_ARCHIVE_DIR": str(self.archives),
            "AOTBUILD_TARGET_ARCH": "gfx942,gfx11-generic",
            "ROCM_PATH": "/nowhere",
            "CUDAToolkit_ROOT": "/nowhere",
        }
        run(
            *offline(), sys.executable, "-m", "pip", "wheel", "-q", "--no-index",
            "--no-build-isolation", "--no-deps", "-C", f"build-dir={self.folder}/build", *options,
            "-w", self.folder / name, EXAMPLES / "wheel_host",
            environment={**clean_environment(), **settings},
        )  # fmt: skip
        (wheel,) = (self.folder / name).glob("wheel_host-1.0-*.whl")
        return wheel


@pytest.fixture(scope="module")
def builder(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("wheels"), archives)


@pytest.fixture(scope="module")
def wheel(builder: Builder) -> Path:
    return builder.wheel("bundled")


@pytest.fixture
def unpacked(wheel: Path, tmp_path: Path) -> Path:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    return tmp_path / "wheel_host"


def module_of(package: Path) -> Path:
    (module,) = package.glob("_core.*.so")
    return module


def describe(wheel: Path, folder: Path, **more: str) -> tuple[Path, str]:
    """Installs into a fresh environment. Its packages' folder, and what the module says there."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", wheel)
    program = (
        "import importlib.util, sysconfig, wheel_host\n"
        "assert importlib.util.find_spec('aotbuild') is None\n"
        "print(sysconfig.get_path('platlib'))\n"
        "print(wheel_host.version(), wheel_host.describe('gfx942'))\n"
    )
    environment = {**clean_environment(), **more}
    said = run(python, "-I", "-c", program, environment=environment).stdout
    place, _, rest = said.partition("\n")
    return Path(place), rest


def test_the_module_the_runtime_the_wanted_packs_and_nothing_else(unpacked: Path) -> None:
    module = module_of(unpacked)
    assert files_of(unpacked) == {"__init__.py", module.name, *CARRIED}
    assert sorted(path.name for path in unpacked.parent.iterdir()) == [
        "wheel_host",
        "wheel_host-1.0.dist-info",
    ]


def test_its_links_are_relative(unpacked: Path) -> None:
    module, library = module_of(unpacked), unpacked / "lib" / "libaotbuild.so.0"
    assert dynamic(module, "RUNPATH") + dynamic(module, "RPATH") == ["$ORIGIN/lib"]
    assert "libaotbuild.so.0" in dynamic(module, "NEEDED")
    assert dynamic(library, "RUNPATH") + dynamic(library, "RPATH") == []
    assert not any("zstd" in name for name in dynamic(library, "NEEDED"))


def test_no_build_path_is_inside(unpacked: Path, builder: Builder) -> None:
    for name in files_of(unpacked):
        data = (unpacked / name).read_bytes()
        for place in (builder.folder, EXAMPLES, "/pip-"):
            assert str(place).encode() not in data, f"{name} names {place}"


def test_it_runs_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    packages, said = describe(wheel, tmp_path / "environment")
    images = packages / "wheel_host" / "lib" / "aotbuild.images"
    assert said.startswith(aotbuild.__version__)
    assert f"{images} (beside the library)\n" in said
    assert f"{images}/gfx942/vector.aotpack: 3 images" in said


def test_without_a_bundle_it_only_links(builder: Builder, wheel: Path, tmp_path: Path) -> None:
    """As for a distribution, which has the runtime and packs in packages of their own."""
    linked = builder.wheel("linked", "-C", "cmake.define.AOTBUILD_BUNDLE=OFF")
    shutil.unpack_archive(linked, tmp_path / "unpacked", "zip")
    package = tmp_path / "unpacked" / "wheel_host"
    assert files_of(package) == {"__init__.py", module_of(package).name}
    shutil.copytree(Path(aotbuild.cmake_dir()).parents[1], tmp_path / "system" / "lib")
    system = str(tmp_path / "system" / "lib")
    _, said = describe(linked, tmp_path / "environment", LD_LIBRARY_PATH=system)
    assert f"{system}/aotbuild.images (beside the library)" in said
