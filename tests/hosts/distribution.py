"""aotbuild as a Linux distribution builds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cmake_projects import clean_environment, newest_cmake, run
from hosting import build_project, offline

LIBDIR = "lib/x86_64-linux-gnu"
COMPONENTS = ("Runtime", "Development", "Images")


@dataclass(frozen=True)
class Distribution:
    """Three packages of a distribution, each unpacked on its own, and all together."""

    folder: Path

    def package(self, component: str) -> Path:
        return self.folder / component

    @property
    def prefix(self) -> Path:
        return self.folder / "all" / "usr"

    @property
    def library(self) -> Path:
        return self.prefix / LIBDIR / "libaotbuild.so.0"

    @property
    def cmake_dir(self) -> Path:
        return self.prefix / LIBDIR / "cmake" / "aotbuild"


def build_as_distribution(source: Path, folder: Path, archives: Path) -> None:
    """As a package's build does it: no network, paths mapped away, DESTDIR, one folder for each
    component."""
    build = folder / "build"
    # The last that fits is taken, and the build folder may lie in the source tree.
    maps = " ".join(f"-ffile-prefix-map={path}=." for path in (source, build))
    build_project(
        source,
        build,
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DCMAKE_INSTALL_PREFIX=/usr",
        f"-DCMAKE_INSTALL_LIBDIR={LIBDIR}",
        "-DCMAKE_SKIP_RPATH=ON",
        f"-DCMAKE_CXX_FLAGS={maps}",
        f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={archives}",
        "-DAOTBUILD_TARGET_ARCH=gfx942",
        before=offline(),
    )
    for component in COMPONENTS:
        for package in (folder / component, folder / "all"):
            words = (newest_cmake(), "--install", build, "--component", component)
            run(*words, environment={**clean_environment(), "DESTDIR": str(package)})
