"""A Python package of the packs of one arch: a wheel whose bytes depend on the packs alone.

It holds `aotbuild_images/<arch>/<family>.aotpack`. `aotbuild_images` is a namespace package, so
that the wheels of several arches share it, and the runtime's Python face searches its folders.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from aotbuild.errors import ReleaseError

#: Some tools and file systems end here, and a wheel index need not take more.
MAX_SIZE = 2 << 30
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can say
_TAG = "py3-none-any"


@dataclass(frozen=True)
class Wheel:
    file: str
    data: bytes


def write_wheel(arch: str, version: str, packs: Mapping[str, bytes], license_text: bytes) -> Wheel:
    """The wheel of an arch. `packs` are the files by family. Raises ReleaseError if it would be
    2 GiB or more.
    """
    name = f"aotbuild_images_{arch}"
    info = f"{name}-{version}.dist-info"
    files = {
        f"aotbuild_images/{arch}/{family}.aotpack": data for family, data in sorted(packs.items())
    }
    # With a file of its own, the namespace's folder goes with the last wheel in it: `pip uninstall`
    # leaves a folder that holds only folders.
    files |= {
        f"aotbuild_images/{arch}.txt": _about(arch).encode(),
        f"{info}/METADATA": _metadata(arch, version).encode(),
        f"{info}/WHEEL": _wheel(version).encode(),
        f"{info}/LICENSE": license_text,
    }
    record = f"{info}/RECORD"
    rows = [f"{file},sha256={_digest(data)},{len(data)}\n" for file, data in files.items()]
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    size = sum(map(len, files.values()))
    if size >= MAX_SIZE:
        raise ReleaseError(
            f"the wheel for {arch} would be {size} bytes, and may have less than {MAX_SIZE}: "
            f"release fewer families at a time ({', '.join(sorted(packs))})"
        )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:  # packs are compressed
        for file, data in files.items():
            entry = zipfile.ZipInfo(file, _EPOCH)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return Wheel(f"{name}-{version}-{_TAG}.whl", stream.getvalue())


def _about(arch: str) -> str:
    # The extra as pip normalises it; before 23.3 it did not find sm_90 for sm-90.
    return f"""\
Packs of compiled kernels for {arch}. The package aotbuild of the same version finds them; install
both with `pip install 'aotbuild[{_dashed(arch)}]'`.
"""


def _metadata(arch: str, version: str) -> str:
    return f"""\
Metadata-Version: 2.1
Name: aotbuild-images-{_dashed(arch)}
Version: {version}
Summary: Triton kernels for {arch}, compiled ahead of time for aotbuild
License: MIT
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.10
Description-Content-Type: text/markdown

{_about(arch)}"""


def _dashed(arch: str) -> str:
    """As names of packages and extras are normalised."""
    return arch.replace("_", "-")


def _wheel(version: str) -> str:
    return f"""\
Wheel-Version: 1.0
Generator: aotbuild {version}
Root-Is-Purelib: true
Tag: {_TAG}
"""


def _digest(data: bytes) -> str:
    """SHA-256 as RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
