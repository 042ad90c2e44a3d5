"""Copies of aotbuild that hosts use: as a distribution builds it, and with a suffix."""

from __future__ import annotations

from pathlib import Path

import pytest
from cmake_projects import newest_cmake, run
from distribution import Distribution, build_as_distribution
from hosting import ROOT, build_once, build_project
from release_folder import Release, archive, tree

import aotbuild


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of released files: packs of two arches, a runtime, and the index."""
    release = Release(tmp_path_factory.mktemp("archives"))
    for arch in ("gfx942", "sm_90"):
        release.add_pack(arch)
    wheel = Path(aotbuild.cmake_dir()).parents[2]  # its package folder is a prefix
    members = tree(wheel, names=("lib", "include", "share"))
    members["lib/libaotbuild.so"] = Path("libaotbuild.so.0")  # a wheel holds no links
    release.add_runtime(archive(members), toolkits=("cuda-13",))
    release.publish()
    return release.folder


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory, archives: Path) -> Distribution:
    def make(folder: Path) -> None:
        build_as_distribution(ROOT, folder, archives)

    return Distribution(build_once(tmp_path_factory, "distribution", make))


@pytest.fixture(scope="session")
def suffixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of a copy whose names carry a suffix."""

    def make(folder: Path) -> None:
        options = ("-DAOTBUILD_SONAME_SUFFIX=_framework", "-DCMAKE_INSTALL_LIBDIR=lib")
        build = build_project(ROOT, folder / "build", *options)
        run(newest_cmake(), "--install", build, "--prefix", folder / "prefix")

    return build_once(tmp_path_factory, "suffixed", make) / "prefix"
