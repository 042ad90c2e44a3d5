"""Copies of aotbuild that hosts use: as a distribution builds it, and with a suffix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from distribution import Distribution, build_as_distribution
from hosting import ROOT, build_once, build_project, run, tool


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packs, as `aotbuild compile --output` writes it."""
    folder = tmp_path_factory.mktemp("packs")
    for arch in ("gfx942", "gfx950"):
        (folder / arch).mkdir()
    shutil.copy(ROOT / "tests/data/good.aotpack", folder / "gfx942" / "vector.aotpack")
    return folder


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory, packs: Path) -> Distribution:
    def make(folder: Path) -> None:
        build_as_distribution(ROOT, folder, packs)

    return Distribution(build_once(tmp_path_factory, "distribution", make))


@pytest.fixture(scope="session")
def suffixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of a copy whose names carry a suffix."""

    def make(folder: Path) -> None:
        options = ("-DAOTBUILD_SONAME_SUFFIX=_framework", "-DCMAKE_INSTALL_LIBDIR=lib")
        build = build_project(ROOT, folder / "build", *options)
        run(tool("cmake"), "--install", build, "--prefix", folder / "prefix")

    return build_once(tmp_path_factory, "suffixed", make) / "prefix"
