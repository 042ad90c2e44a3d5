"""examples/cpp_host, bringing aotbuild in. tests/cmake/test_install.py builds it with one that is
installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from cmake_projects import newest_cmake, run
from hosting import EXAMPLES, build_project, files_of, offline
from hosts import NO_TOOLKITS


def test_what_it_installs_runs_anywhere(archives: Path, tmp_path: Path) -> None:
    build = build_project(
        EXAMPLES / "cpp_host",
        tmp_path / "build",
        "-DCPP_HOST_PROVISION=ON",
        f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={archives}",
        "-DAOTBUILD_TARGET_ARCH=gfx942",
        *NO_TOOLKITS,
        before=offline(),
    )
    assert not (build / "_aotbuild" / "build.log").exists()  # the published runtime was taken
    run(newest_cmake(), "--install", build, "--prefix", tmp_path / "first")
    prefix = Path(shutil.move(tmp_path / "first", tmp_path / "moved"))
    shutil.rmtree(build)
    assert files_of(prefix) == {
        "bin/cpp_host",
        "lib/libaotbuild.so.0",
        "lib/aotbuild.images/gfx942/vector.aotpack",
    }
    said = run(prefix / "bin" / "cpp_host").stdout
    assert f"{prefix}/lib/aotbuild.images (beside the library)\n" in said
