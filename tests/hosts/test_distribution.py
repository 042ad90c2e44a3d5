"""aotbuild as a Linux distribution packages it: offline, with DESTDIR, the system's libzstd, and
one package for each component."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

from cmake_projects import run
from distribution import LIBDIR, Distribution, build_as_distribution
from hosting import ROOT, build_project, dynamic, files_of, offline

import aotbuild


def test_each_component_is_a_package(distribution: Distribution) -> None:
    version = aotbuild.__version__
    assert files_of(distribution.package("Runtime")) == {
        f"usr/{LIBDIR}/libaotbuild.so.0",
        f"usr/{LIBDIR}/libaotbuild.so.{version}",
        "usr/share/aotbuild/runtime.json",
    }
    assert files_of(distribution.package("Development")) == {
        f"usr/{LIBDIR}/libaotbuild.so",
        f"usr/{LIBDIR}/cmake/aotbuild/aotbuildConfig.cmake",
        f"usr/{LIBDIR}/cmake/aotbuild/aotbuildConfigVersion.cmake",
        f"usr/{LIBDIR}/cmake/aotbuild/aotbuildTargets.cmake",
        f"usr/{LIBDIR}/cmake/aotbuild/aotbuildTargets-relwithdebinfo.cmake",
        f"usr/{LIBDIR}/cmake/aotbuild/AotbuildProvision.cmake",
        f"usr/{LIBDIR}/cmake/aotbuild/index.json",
        "usr/include/aotbuild/aotbuild.h",
        "usr/include/aotbuild/aotbuild.hpp",
    }
    assert files_of(distribution.package("Images")) == {
        "usr/share/aotbuild/images/gfx942/vector.aotpack"
    }


def test_it_uses_the_systems_libraries(distribution: Distribution) -> None:
    assert "libzstd.so.1" in dynamic(distribution.library, "NEEDED")
    assert dynamic(distribution.library, "RPATH") + dynamic(distribution.library, "RUNPATH") == []


def test_it_is_reproducible_wherever_it_is_built(
    distribution: Distribution, archives: Path, tmp_path: Path
) -> None:
    source = tmp_path / "elsewhere"
    build_outputs = shutil.ignore_patterns(".*", "build", "*.so", "*.so.*", "__pycache__")
    shutil.copytree(ROOT, source, ignore=build_outputs)
    build_as_distribution(source, tmp_path, archives)

    def hashes(folder: Path) -> dict[str, str]:
        return {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in files_of(folder)
        }

    assert hashes(tmp_path / "all") == hashes(distribution.folder / "all")


def test_no_file_names_the_build(distribution: Distribution) -> None:
    for name in files_of(distribution.folder / "all"):
        data = (distribution.folder / "all" / name).read_bytes()
        for place in (str(ROOT), str(distribution.folder)):
            assert place.encode() not in data, f"{name} names {place}"


def test_a_program_finds_the_packages_packs(distribution: Distribution, tmp_path: Path) -> None:
    consumer = ROOT / "tests/cmake/consumer"
    build_project(consumer, tmp_path, f"-Daotbuild_DIR={distribution.cmake_dir}")
    text = run(tmp_path / "consumer", "gfx942").stdout
    images = distribution.prefix / "share/aotbuild/images"
    assert f"{images} (installation prefix)" in text
    assert f"{images}/gfx942/vector.aotpack" in text


def test_the_python_package_builds_offline(tmp_path: Path) -> None:
    run(
        *offline(),
        *(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-index",
            "--no-build-isolation",
            "--no-deps",
        ),
        *("-C", f"build-dir={tmp_path}/build", "-C", "cmake.define.AOTBUILD_STATIC_ZSTD=OFF"),
        *("-w", tmp_path, ROOT),
    )
    (wheel,) = tmp_path.glob("aotbuild-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract("aotbuild/lib/libaotbuild.so.0", tmp_path))
    assert "libzstd.so.1" in dynamic(library, "NEEDED")
