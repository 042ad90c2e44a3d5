"""Wheels of images, and what pip makes of them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

from aotbuild import image_wheel
from aotbuild.errors import ReleaseError
from aotbuild.image_wheel import write_wheel
from aotbuild.target import ARCHES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION: str = PROJECT["version"]
PACKS = {"vector": b"AOTPACK" * 100, "attention": b"another"}
LICENSE = b"Do as you like.\n"


def write(folder: Path, arch: str) -> Path:
    wheel = write_wheel(arch, VERSION, PACKS, LICENSE)
    path = folder / wheel.file
    path.write_bytes(wheel.data)
    return path


def pip(python: Path | str, *arguments: str | Path) -> str:
    command = [str(python), "-m", "pip", *map(str, arguments), "--disable-pip-version-check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_wheel, "MAX_SIZE", 1000)
    with pytest.raises(ReleaseError, match=r"for gfx942 would be \d+ bytes, .*attention, vector"):
        write_wheel("gfx942", VERSION, PACKS, LICENSE)


def test_the_limit_is_that_of_old_tools() -> None:
    assert image_wheel.MAX_SIZE == 2**31


def test_every_file_is_recorded(tmp_path: Path) -> None:
    path = write(tmp_path, "sm_90")
    assert path.name == f"aotbuild_images_sm_90-{VERSION}-py3-none-any.whl"
    info = f"aotbuild_images_sm_90-{VERSION}.dist-info"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        rows = list(csv.reader(io.StringIO(archive.read(names[-1]).decode())))
        assert names[-1] == f"{info}/RECORD"
        assert [row[0] for row in rows] == names
        assert rows[-1] == [names[-1], "", ""]
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={wanted}", str(len(data)))
        assert archive.read("aotbuild_images/sm_90/vector.aotpack") == PACKS["vector"]
        entries = archive.infolist()
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        wheel = BytesParser().parsebytes(archive.read(f"{info}/WHEEL"))
    # A namespace package: one with an __init__.py would hide those of other arches.
    assert [name for name in names if name.endswith(".py")] == []
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {oct(entry.external_attr >> 16) for entry in entries} == {"0o100644"}
    assert (metadata["Name"], metadata["Version"]) == ("aotbuild-images-sm-90", VERSION)
    assert (metadata["License"], metadata["Requires-Python"]) == ("MIT", ">=3.10")
    assert metadata["Metadata-Version"] == "2.1"
    assert "pip install 'aotbuild[sm-90]'" in str(metadata.get_payload())
    assert metadata["Summary"]
    assert (wheel["Root-Is-Purelib"], wheel["Tag"]) == ("true", "py3-none-any")


def test_equal_packs_give_equal_bytes() -> None:
    first = write_wheel("gfx942", VERSION, PACKS, LICENSE)
    assert write_wheel("gfx942", VERSION, dict(reversed(PACKS.items())), LICENSE) == first


def test_wheels_install_side_by_side_and_go_without_a_trace(tmp_path: Path) -> None:
    wheels = [write(tmp_path, arch) for arch in ("sm_90", "gfx942")]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    before = set(site.iterdir())

    pip(python, "install", "--no-index", *wheels)
    pip(python, "check")
    code = "import aotbuild_images as a; print(*a.__path__, sep='\\n')"
    shown = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines() == [str(site / "aotbuild_images")]
    packs = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.aotpack"))
    assert packs == [
        f"aotbuild_images/{arch}/{family}.aotpack"
        for arch in ("gfx942", "sm_90")
        for family in sorted(PACKS)
    ]
    pip(python, "uninstall", "-y", "aotbuild-images-sm_90")
    left = sorted(path.name for path in (site / "aotbuild_images").iterdir())
    assert left == ["gfx942", "gfx942.txt"]
    pip(python, "uninstall", "-y", "aotbuild_images_gfx942")
    assert set(site.iterdir()) == before


def test_every_arch_has_an_extra() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    for name in ("compile", "release"):
        extras.pop(name)
    assert extras == {
        arch.name: [f"aotbuild-images-{arch.name.replace('_', '-')}=={VERSION}"] for arch in ARCHES
    }


@pytest.fixture(scope="module")
def aotbuild_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel named by AOTBUILD_TEST_WHEEL, which CI sets, or else one built here."""
    if given := os.environ.get("AOTBUILD_TEST_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "-w", folder, ROOT)
    (built,) = folder.glob("aotbuild-*.whl")
    return built


@pytest.mark.parametrize("spelling", ["sm_90", "sm-90", "SM_90", "sm_90,gfx942"])
def test_extras_in_every_spelling_bring_their_images(
    spelling: str, aotbuild_wheel: Path, tmp_path: Path
) -> None:
    for arch in ("sm_90", "gfx942", "gfx950"):
        write(tmp_path, arch)
    said = pip(
        sys.executable, "install", "--dry-run", "--quiet", "--report", "-", "--no-index",
        "--find-links", tmp_path, f"aotbuild[{spelling}] @ {aotbuild_wheel.as_uri()}",
    )  # fmt: skip
    found = {item["metadata"]["name"] for item in json.loads(said)["install"]}
    wanted = {"aotbuild-images-sm-90"} | (
        {"aotbuild-images-gfx942"} if "gfx942" in spelling else set()
    )
    assert found - {"aotbuild"} == wanted
