"""Archives of a release, .tar.gz: written so that equal members give equal bytes, and unpacked
without trust in what they hold.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aotbuild.errors import FetchError, ReleaseError, TrustError

MAX_MEMBERS = 10_000
_BLOCK = 512
#: What may follow the last member: zeros, up to the record that the largest of writers fills.
_MAX_PADDING = 1 << 20
_MAX_NAME = 255
_CHUNK = 1 << 20
#: One part of a path: printable ASCII but no slash and no backslash.
_PART = re.compile(r"[ -.0-\[\]-~]+")
_GZIP = 16 + zlib.MAX_WBITS
#: What tarfile raises for a file that is no tar, or that was made to break it.
_TAR_ERRORS = (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError)


@dataclass(frozen=True)
class Member:
    """A file of an archive, or a symbolic link if `link` says where to; `name` has slashes."""

    name: str
    data: bytes = b""
    executable: bool = False
    link: str = ""


class _FaultError(Exception):
    """Why a member cannot be in an archive."""


@dataclass(frozen=True)
class _Entry:
    """A member as it is found in an archive, with its bytes at `start`."""

    name: str
    link: str = ""
    folder: bool = False
    executable: bool = False
    start: int = 0
    size: int = 0


def write_archive(members: Iterable[Member]) -> bytes:
    """The archive of `members`, in the order of their names: no times, no owners, mode 0644 or
    0755. Raises ReleaseError for what `extract` would refuse.
    """
    ordered = sorted(members, key=lambda member: member.name)
    try:
        _check([_Entry(member.name, member.link) for member in ordered])
    except _FaultError as fault:
        raise ReleaseError(f"cannot archive {fault}") from None
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member in ordered:
            info = tarfile.TarInfo(member.name)
            info.mode = 0o755 if member.executable or member.link else 0o644
            info.size = len(member.data)
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, member.link
            try:
                tar.addfile(info, io.BytesIO(member.data))
            except ValueError as error:  # USTAR holds names of up to 100 and 155 bytes
                raise ReleaseError(f"cannot archive {member.name!r}: {error}") from error
    deflate = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    return deflate.compress(stream.getbuffer()) + deflate.flush()


def extract(archive: Path, folder: Path, *, limit: int) -> tuple[str, ...]:
    """Unpacks `archive` as `folder`, which must be absent or empty, and returns the names of its
    files and links. `limit` is the size in bytes that it may have when inflated.

    Every member is checked before the first is written, and `folder` appears whole or not at all.
    Raises TrustError, which names the archive and the member, for whatever reaches out of `folder`
    or is not a plain file, folder or symbolic link; FetchError if `folder` holds something.
    """
    if folder.is_symlink() or (folder.exists() and not _is_empty_folder(folder)):
        raise FetchError(f"cannot unpack {archive}: {folder} is there already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        content = Path(aside, "content")
        content.mkdir()
        with Path(aside, "tar").open("w+b") as plain:
            try:
                _inflate(archive, plain, limit)
                with mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ) as view:
                    entries = tuple(_entries(view))
                    _check(entries)
                    for entry in entries:
                        _write(content, entry, view)
            except _FaultError as fault:
                raise TrustError(f"archive {archive}: {fault}; nothing was unpacked") from None
        content.chmod(0o755)
        content.replace(folder)
    return tuple(entry.name for entry in entries if not entry.folder)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _inflate(archive: Path, plain: BinaryIO, limit: int) -> None:
    """Writes what the gzip file holds to `plain`. Reads no further than `limit` allows."""
    inflate = zlib.decompressobj(_GZIP)
    with archive.open("rb") as packed:
        left = limit
        while not inflate.eof:
            data = inflate.unconsumed_tail or packed.read(_CHUNK)
            try:
                raw = inflate.decompress(data, _CHUNK)
            except zlib.error as error:
                raise _FaultError(f"it is no gzip file, or damaged: {error}") from error
            if not data and not raw:
                raise _FaultError("it ends in the middle")
            left -= len(raw)
            if left < 0:
                raise _FaultError(f"it is larger than {limit} bytes when inflated")
            plain.write(raw)
        if inflate.unused_data or packed.read(1):
            raise _FaultError("it has data behind its end")
    plain.flush()
    if plain.tell() == 0:
        raise _FaultError("it is empty")


def _entries(view: mmap.mmap) -> Iterator[_Entry]:
    """The members of a tar file. Stops at the first that is not plain, or that goes backwards."""
    # A mapping, since its read() gives what is there and never reserves what a header claims.
    end, count = 0, 0
    try:
        with tarfile.open(fileobj=view, mode="r:", errors="surrogateescape") as tar:
            while (info := tar.next()) is not None:
                count += 1
                if count > MAX_MEMBERS:
                    raise _FaultError(f"it has more than {MAX_MEMBERS} members")
                entry = _entry(info)
                start = info.offset_data
                if start < end + _BLOCK or not 0 <= entry.size <= len(view) - start:
                    raise _FaultError(f"member {info.name!r} lies outside of the file")
                end = start + -(-entry.size // _BLOCK) * _BLOCK
                yield entry
    except _TAR_ERRORS as error:
        raise _FaultError(f"it is no tar file, or damaged: {error}") from error
    # tarfile takes a damaged header for the end.
    if len(view) - end > _MAX_PADDING or any(view[end:]):
        raise _FaultError("it has data behind its last member, or a damaged header")


def _entry(info: tarfile.TarInfo) -> _Entry:
    if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and info.sparse is None:
        executable = bool(info.mode & 0o100)
        return _Entry(info.name, "", False, executable, info.offset_data, info.size)
    if info.type == tarfile.SYMTYPE and info.linkname:
        return _Entry(info.name, info.linkname)
    if info.type == tarfile.DIRTYPE:
        return _Entry(info.name, folder=True)
    raise _FaultError(
        f"member {info.name!r} is of type {info.type!r}; only files, folders and symbolic links "
        "may be in it"
    )


def _check(entries: Sequence[_Entry]) -> None:
    """Raises _FaultError unless all names and links stay inside, and each means one thing."""
    names: set[str] = set()
    for entry in entries:
        parts = entry.name.split("/")
        good = all(_PART.fullmatch(part) and part not in (".", "..") for part in parts)
        if not good or len(entry.name) > _MAX_NAME:
            raise _FaultError(
                f"member {entry.name!r}: a name is a relative path of printable ASCII, without "
                f"'.', '..' and backslashes, and of up to {_MAX_NAME} characters"
            )
        if entry.name in names:
            raise _FaultError(f"member {entry.name!r} is there twice")
        names.add(entry.name)
    folders = {parent for name in names for parent in _parents(name)}
    folders |= {entry.name for entry in entries if entry.folder}
    for entry in entries:
        if entry.name in folders and not entry.folder:
            raise _FaultError(
                f"member {entry.name!r} is no folder, and the parent of another member"
            )
        if entry.link and _target(entry) not in names | folders:
            raise _FaultError(
                f"member {entry.name!r} links to {entry.link!r}, which is not in the archive"
            )
    if not names:
        raise _FaultError("it is empty")


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _target(entry: _Entry) -> str:
    """The member that a link means; "" if it reaches out. No member lies below a link, so the text
    alone tells; but '..' behind a name could follow another link, and is no use there.
    """
    folder, parts = entry.name.split("/")[:-1], entry.link.split("/")
    while parts and parts[0] == "..":
        if not folder:
            return ""
        del folder[-1], parts[0]
    return "" if ".." in parts else "/".join([*folder, *parts])


def _write(root: Path, entry: _Entry, view: mmap.mmap) -> None:
    path = root / entry.name
    for folder in (*reversed(list(_parents(entry.name))), *([entry.name] if entry.folder else [])):
        if not (root / folder).is_dir():
            (root / folder).mkdir()
            (root / folder).chmod(0o755)
    if entry.link:
        path.symlink_to(entry.link)
    elif not entry.folder:
        with path.open("xb") as file:
            view.seek(entry.start)
            for left in range(entry.size, 0, -_CHUNK):
                file.write(view.read(min(left, _CHUNK)))
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o755 if entry.executable else 0o644)
