"""A release small enough for tests: packs without real code, an index and its signature."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

from make_packs import good_pack

from aotbuild import signature
from aotbuild.archive import Member, write_archive
from aotbuild.index import Artifact, Index, PublishedArch, write_index
from aotbuild.pack import decode, encode
from aotbuild.target import ARCHES

#: The key that signs these releases: private and public part.
PRIVATE, PUBLIC = signature.create_key()
LATER = dt.datetime(2100, 1, 1, tzinfo=dt.timezone.utc)


def pack_bytes(arch: str, note: str, size: int = 20_000) -> bytes:
    """A pack of family "vector" with about `size` bytes that do not compress; by `note`."""
    noise = random.Random(note).randbytes(size // 2).hex()
    meta = json.dumps({"note": note, "noise": noise})
    return encode(dataclasses.replace(good_pack(), arch=arch, meta=meta))


def image_archive(data: bytes, version: str) -> tuple[Artifact, bytes]:
    """The archive of a pack, and its entry in an index."""
    pack = decode(data)
    packed = write_archive([Member(f"{pack.arch}/{pack.family}.aotpack", data)])
    artifact = Artifact(
        kind="images",
        file=f"aotbuild-images-{pack.family}-{pack.arch}-{version}.tar.gz",
        size=len(packed),
        sha256=hashlib.sha256(packed).hexdigest(),
        arch=pack.arch,
        family=pack.family,
        pack_id=pack.pack_id,
        contracts={f"{pack.family}.{item.name}": item.contract for item in pack.operators},
    )
    return artifact, packed


def write_release(
    folder: Path,
    arches: Sequence[str] = ("gfx942", "gfx950"),
    *,
    note: str = "",
    version: str = "0.1.0",
    serial: int = 1,
    mirrors: Sequence[str] = (),
    size: int = 20_000,
    expires: dt.datetime = LATER,
) -> Index:
    """Writes the archives, `index.json` and `index.json.sig`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [image_archive(pack_bytes(arch, f"{arch} {note}", size), version) for arch in arches]
    for artifact, packed in made:
        (folder / artifact.file).write_bytes(packed)
    index = Index(
        version=version, serial=serial, expires=expires, mirrors=tuple(mirrors), keys=(PUBLIC,),
        arches=tuple(PublishedArch(arch.name, arch.vendor, arch.tier) for arch in ARCHES),
        artifacts=tuple(artifact for artifact, _ in made),
    )  # fmt: skip
    write_signed(folder, index)
    return index


def write_signed(folder: Path, index: Index) -> None:
    """Writes an index and its signature."""
    data = write_index(index)
    (folder / "index.json").write_bytes(data)
    (folder / "index.json.sig").write_text(signature.sign(data, PRIVATE), "ascii")
