"""A project that brings aotbuild in, with a home and a build tree of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cmake_projects import clean_environment, run

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "host"
#: No toolkit of the machine that runs the tests counts.
NO_TOOLKITS = ("-DROCM_PATH=/nowhere", "-DCUDAToolkit_ROOT=/nowhere")


@dataclass(frozen=True)
class Host:
    """`folder` gets source/ with a copy of the project and of AotbuildProvision.cmake, build/ and
    home/, so that it shows what is written where.
    """

    folder: Path
    cmake: Path

    @property
    def build_folder(self) -> Path:
        return self.folder / "build"

    @property
    def work(self) -> Path:
        return self.build_folder / "_aotbuild"

    @property
    def images(self) -> set[str]:
        images = self.work / "prefix" / "share" / "aotbuild" / "images"
        return {path.relative_to(images).as_posix() for path in images.rglob("*.aotpack")}

    def command(self, *options: str) -> list[str | Path]:
        source = self.folder / "source"
        if not source.exists():
            shutil.copytree(PROJECT, source)
            (self.folder / "home").mkdir()
        provision = source / "aotbuild" / "AotbuildProvision.cmake"
        if not provision.exists():
            provision.parent.mkdir()
            shutil.copy(ROOT / "cmake" / provision.name, provision)
        command = [self.cmake, "-G", "Ninja", "-S", source, "-B", self.build_folder]
        if (self.build_folder / "CMakeCache.txt").exists():
            return [*command, *options]
        return [*command, *NO_TOOLKITS, f"-DPROVISION_FILE={provision}", *options]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**clean_environment(), "HOME": str(self.folder / "home"), **more}

    def configure(
        self,
        *options: str,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> str:
        """What CMake says, each run of blanks as one, since CMake breaks lines."""
        command = self.command(*options)
        result = run(
            *command, check=False, environment=self.environment(environment or {}), preexec=preexec
        )
        text = " ".join(f"{result.stdout}\n{result.stderr}".split())
        assert (result.returncode == 0) == check, f"{' '.join(map(str, command))}\n{text}"
        return text

    def start(self, *options: str) -> subprocess.Popen[str]:
        """The same, not waited for."""
        return subprocess.Popen(
            self.command(*options), env=self.environment({}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str, libraries: Path | None = None) -> str:
        """Builds the project and runs its program."""
        run(self.cmake, "--build", self.build_folder)
        more = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
        program = self.build_folder / "host"
        return run(program, *words, environment=self.environment(more)).stdout

    def install(self, prefix: Path, *options: str) -> set[str]:
        """Installs, and gives the files that are in the prefix then."""
        run(self.cmake, "--build", self.build_folder)
        run(self.cmake, "--install", self.build_folder, "--prefix", prefix, *options)
        return {
            os.path.relpath(Path(folder, name), prefix)
            for folder, _, names in os.walk(prefix)
            for name in names
        }
