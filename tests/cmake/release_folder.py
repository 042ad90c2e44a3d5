"""Folders of released files as mirrors hold them: packs, prebuilt runtimes, sources, an index."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from make_packs import good_pack

from aotbuild.index import Artifact, Index, PublishedArch, write_index
from aotbuild.pack import encode
from aotbuild.target import ARCHES, parse_arch

VERSION = "0.1.0"
LIBC = "glibc-2.17"  # older than what any machine has that runs these tests


def pack_bytes(arch: str, family: str = "vector", note: str = "") -> bytes:
    """A pack that opens. Its code objects are for a reader, not for a GPU."""
    target = parse_arch(arch).arch
    good = good_pack()
    images = good.images
    if target.vendor == "cuda":  # a descriptor of AMD's form is not for it
        plain = tuple(a for a in images[0].facts.arguments if a.descriptor is None)
        images = tuple(replace(i, facts=replace(i.facts, arguments=plain)) for i in images)
    return encode(
        replace(
            good, arch=arch, family=family, images=images,
            vendor=2 if target.vendor == "hip" else 1,
            warp_size=target.warp_size, meta=json.dumps({"note": note}),
        )
    )  # fmt: skip


def archive(members: Mapping[str, bytes | Path]) -> bytes:
    """A .tar.gz of files and, where a member is a Path, symbolic links to that."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            if isinstance(content, Path):
                member.type, member.linkname = tarfile.SYMTYPE, str(content)
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def tree(folder: Path, below: str = "", names: Iterable[str] = ("",)) -> dict[str, bytes | Path]:
    """The members of an archive of a folder, or of what is named in it."""
    found: dict[str, bytes | Path] = {}
    for start in names:
        top = folder / start
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = below + path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[name] = path.readlink()
            elif path.is_file() and "__pycache__" not in path.parts:
                found[name] = path.read_bytes()
    return found


@dataclass
class Release:
    """A folder that is filled file by file; `publish` writes its index."""

    folder: Path
    artifacts: list[Artifact] = field(default_factory=list)

    def add(self, artifact: Artifact, data: bytes) -> Artifact:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / artifact.file).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        self.artifacts.append(replace(artifact, size=len(data), sha256=digest))
        return self.artifacts[-1]

    def add_pack(
        self,
        arch: str,
        family: str = "vector",
        *,
        note: str = "",
        contracts: Mapping[str, int] | None = None,
        data: bytes | None = None,
    ) -> Artifact:
        """`data`: an archive to publish in place of a good one."""
        pack = pack_bytes(arch, family, note)
        artifact = Artifact(
            "images", f"aotbuild-images-{family}-{arch}-{VERSION}.tar.gz", 0, "", arch=arch,
            family=family, pack_id=hashlib.sha256(pack).hexdigest(), contracts=contracts or {},
        )  # fmt: skip
        return self.add(artifact, data or archive({f"{arch}/{family}.aotpack": pack}))

    def add_runtime(
        self, data: bytes, *, toolkits: tuple[str, ...], cpu: str = "x86_64", libc: str = LIBC
    ) -> Artifact:
        artifact = Artifact(
            "runtime", f"aotbuild-runtime-{VERSION}-linux-{cpu}.tar.gz", 0, "", cpu=cpu, libc=libc,
            toolkits=toolkits, contracts={"attention.forward": 1},
        )  # fmt: skip
        return self.add(artifact, data)

    def add_source(self, root: Path) -> Artifact:
        names = ("CMakeLists.txt", "cmake", "images/index.json", "pyproject.toml", "runtime")
        members = tree(root, f"aotbuild-{VERSION}/", names)
        return self.add(Artifact("source", f"aotbuild-{VERSION}.tar.gz", 0, ""), archive(members))

    def publish(self, *mirrors: str) -> Path:
        """Writes the index; gives its path."""
        index = Index(
            version=VERSION,
            serial=1,
            expires=dt.datetime(2100, 1, 1, tzinfo=dt.timezone.utc),
            mirrors=mirrors,
            keys=(),
            arches=tuple(PublishedArch(a.name, a.vendor, a.tier) for a in ARCHES),
            artifacts=tuple(self.artifacts),
        )
        path = self.folder / "index.json"
        path.write_bytes(write_index(index))
        return path
