"""From a wheel to images in an environment of its own, by each of the ways that users have."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import aotbuild
from aotbuild.release import Request, make_release

ROOT = Path(__file__).parents[2]
ARCH = "gfx942"


class Environment:
    """A fresh virtual environment, a home folder without anything, and one kind of GPU."""

    def __init__(self, folder: Path, drivers: Path) -> None:
        self.folder, self.drivers = folder, drivers
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def run(self, *command: str) -> str:
        done = self._run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        outside = ("PYTHONPATH", "AOTBUILD_IMAGE_PATH", "XDG_DATA_HOME")
        env = {name: value for name, value in os.environ.items() if name not in outside}
        env |= {"HOME": str(self.home), "LD_LIBRARY_PATH": str(self.drivers)}
        env |= {"FAKE_CUDA_INIT": "100", "FAKE_HIP_ARCH": ARCH}  # 100: no device
        command = (str(self.folder / "venv" / "bin" / command[0]), *command[1:])
        return subprocess.run(
            command, env=env, cwd=self.home, check=False, capture_output=True, text=True
        )

    def install(self, *what: str) -> None:
        # The cache is the caller's, whose HOME we replace.
        cache = [sys.executable, "-m", "pip", "cache", "dir"]
        found = subprocess.run(cache, check=True, capture_output=True, text=True).stdout.strip()
        self.run("pip", "install", "-q", "--disable-pip-version-check", "--cache-dir", found, *what)

    def doctor(self) -> Doctor:
        done = self._run("aotbuild", "doctor", "--json")
        report = json.loads(done.stdout)
        assert report["healthy"] == (done.returncode == 0)
        packs = tuple(
            (folder["origin"], f"{pack['arch']}/{pack['family']}")
            for folder in report["search_path"]
            for pack in folder["packs"]
        )
        return Doctor(report["healthy"], report["verdict"], packs, str(report["problems"]))


@dataclass(frozen=True)
class Doctor:
    """What it says. Of packs: origin, and place in the folder."""

    healthy: bool
    verdict: str
    packs: tuple[tuple[str, str], ...]
    problems: str


@pytest.fixture
def released(tmp_path: Path, write_hollow_pack: Callable[..., Path]) -> Path:
    """The folder of a release with one pack, from which it is served, too."""
    write_hollow_pack(tmp_path / "packs", ARCH)
    folder = tmp_path / "release"
    expires = dt.datetime.now(dt.timezone.utc).replace(microsecond=0) + dt.timedelta(days=1)
    request = Request(
        version=aotbuild.__version__,
        serial=1,
        expires=expires,
        packs=tmp_path / "packs",
        mirrors=(folder.as_uri(),),
    )
    make_release(request, folder)
    return folder


def test_the_wheel_and_images_by_an_extra_or_by_fetch(
    wheel: Path, released: Path, stand_ins: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment", stand_ins)
    environment.install(str(wheel))
    said = environment.doctor()
    assert (said.verdict, said.packs) == ("2 GPUs; 1 problem", ())
    for way in (f"aotbuild fetch --arch {ARCH}", f"pip install 'aotbuild[{ARCH}]'"):
        assert way in said.problems

    environment.install("--find-links", str(released), f"aotbuild[{ARCH}] @ {wheel.as_uri()}")
    said = environment.doctor()
    assert (said.verdict, said.problems) == ("2 GPUs, served", "[]")
    assert said.packs == (("image wheel", f"{ARCH}/attention"),)
    environment.run("pip", "uninstall", "-q", "-y", f"aotbuild-images-{ARCH}")
    assert environment.doctor().packs == ()

    environment.run("aotbuild", "fetch", "--arch", ARCH, "--index", str(released))
    said = environment.doctor()
    assert (said.verdict, said.problems) == ("2 GPUs, served", "[]")
    assert said.packs == (("home directory", f"{ARCH}/attention"),)


def test_images_chosen_when_installing(released: Path, stand_ins: Path, tmp_path: Path) -> None:
    """From source, whose index pins the release."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("build", "dist", "tests", ".*", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    shutil.copy(released / "index.json", source / "images" / "index.json")
    environment = Environment(tmp_path / "environment", stand_ins)
    chosen = f"cmake.define.AOTBUILD_TARGET_ARCH={ARCH}"
    # Debug, since the compiler is quicker then.
    environment.install(str(source), "-C", chosen, "-C", "cmake.build-type=Debug")
    said = environment.doctor()
    assert (said.verdict, said.problems) == ("2 GPUs, served", "[]")
    assert said.packs == (("beside the library", f"{ARCH}/attention"),)
