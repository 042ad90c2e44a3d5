"""Two copies of aotbuild in one process: a program's, and that of a plugin that it opens."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cmake_projects import run
from distribution import Distribution
from hosting import build_project

SOURCE = Path(__file__).parent / "two_copies"


@dataclass(frozen=True)
class Reports:
    """What the program's copy and the plugin's said, and how their last errors relate."""

    host: str
    plugin: str
    errors: str


def reports(build: Path) -> Reports:
    text = run(build / "host" / "host", build / "plugin" / "libplugin.so", "gfx942").stdout
    pattern = r"host has (.*)\nplugin has (.*)\nlast errors are (\w+)\n"
    found = re.fullmatch(pattern, text, re.DOTALL)
    assert found, text
    return Reports(*found.groups())


def bound_versions(binary: Path) -> set[str]:
    """Versions of the symbols of aotbuild that a binary asks for."""
    text = run("readelf", "--dyn-syms", "-W", binary).stdout
    return set(re.findall(r" UND aotbuild_\w+@(\w+)", text))


def test_copies_with_a_suffix_stay_apart(
    distribution: Distribution, suffixed: Path, tmp_path: Path
) -> None:
    build_project(
        SOURCE,
        tmp_path,
        f"-DHOST_AOTBUILD_DIR={distribution.cmake_dir}",
        f"-DPLUGIN_AOTBUILD_DIR={suffixed / 'lib/cmake/aotbuild_framework'}",
        "-DPLUGIN_PACKAGE=aotbuild_framework",
    )
    found = reports(tmp_path)
    assert str(distribution.prefix / "share/aotbuild/images/gfx942/vector.aotpack") in found.host
    assert str(suffixed) not in found.host
    assert f"{suffixed / 'lib/aotbuild.images'} (beside the library)" in found.plugin
    assert str(distribution.prefix) not in found.plugin
    assert found.errors == "separate"
    assert bound_versions(tmp_path / "host/host") == {"AOTBUILD_0"}
    assert bound_versions(tmp_path / "plugin/libplugin.so") == {"AOTBUILD_framework_0"}


def test_copies_of_one_name_become_one(distribution: Distribution, tmp_path: Path) -> None:
    """The loader takes a library of the same soname that is there already. That is right, as the
    soname is the ABI; packs beside the plugin's own copy are not searched, though."""
    other = tmp_path / "other"
    shutil.copytree(distribution.prefix, other, symlinks=True)
    build_project(
        SOURCE,
        tmp_path / "build",
        f"-DHOST_AOTBUILD_DIR={distribution.cmake_dir}",
        f"-DPLUGIN_AOTBUILD_DIR={other / distribution.cmake_dir.relative_to(distribution.prefix)}",
    )
    needed = run("readelf", "-dW", tmp_path / "build/plugin/libplugin.so").stdout
    assert str(other) in needed  # its RUNPATH: opened alone, it takes its own copy
    found = reports(tmp_path / "build")
    assert str(distribution.prefix / "share/aotbuild/images/gfx942/vector.aotpack") in found.host
    assert found.plugin == found.host
    assert found.errors == "shared"
