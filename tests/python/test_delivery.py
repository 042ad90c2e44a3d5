"""From a wheel to images in an environment of its own, by each of the ways that users have."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import aotbuild

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


@pytest.fixture(scope="module")
def environment(
    wheel: Path, stand_ins: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"), stand_ins)
    made.install(str(wheel))
    return made


def write_image_wheel(pack: Path, folder: Path) -> None:
    """A wheel of images as `aotbuild release` makes them, with one pack."""
    name = f"aotbuild_images_{ARCH}-{aotbuild.__version__}"
    files = {
        f"aotbuild_images/{ARCH}/{pack.name}": pack.read_bytes(),
        f"{name}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: aotbuild-images-{ARCH}\n"
            f"Version: {aotbuild.__version__}\n"
        ).encode(),
        f"{name}.dist-info/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = f"{name}.dist-info/RECORD"
    lines = [f"{file},sha256={_digest(data)},{len(data)}" for file, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_the_wheel_alone_brings_no_images(environment: Environment) -> None:
    said = environment.doctor()
    assert (said.verdict, said.packs) == ("2 GPUs; 1 problem", ())
    for way in (f"aotbuild fetch --arch {ARCH}", f"pip install 'aotbuild[{ARCH}]'"):
        assert way in said.problems


def test_images_by_an_extra(
    wheel: Path,
    environment: Environment,
    tmp_path: Path,
    write_hollow_pack: Callable[..., Path],
) -> None:
    write_image_wheel(write_hollow_pack(tmp_path, ARCH), tmp_path)
    environment.install("--find-links", str(tmp_path), f"aotbuild[{ARCH}] @ {wheel.as_uri()}")
    said = environment.doctor()
    assert (said.verdict, said.problems) == ("2 GPUs, served", "[]")
    assert said.packs == (("image wheel", f"{ARCH}/attention"),)
    environment.run("pip", "uninstall", "-q", "-y", f"aotbuild-images-{ARCH}")
    assert environment.doctor().packs == ()
