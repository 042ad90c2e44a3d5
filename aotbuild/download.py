"""Brings files whose size and SHA-256 are known, from any of several mirrors, into a folder.

`<folder>/<sha256>` is a whole and verified file, `<folder>/<sha256>.part` what there is of one so
far. Any number of processes may use the folder; a file is brought by one of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from aotbuild.cache import prune
from aotbuild.errors import FetchError, TrustError
from aotbuild.index import Artifact
from aotbuild.web import Clock, Limits, PermanentError, TransientError, Web, shown

if TYPE_CHECKING:
    from requests import Response

_T = TypeVar("_T")
_CHUNK = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDY = "or set another folder with cache_dir"
_SCHEMES = ("http://", "https://")


class Watcher(Protocol):
    """What is told of downloads as they go. `position` is in bytes, and may go back."""

    def begun(self, file: str, size: int, position: int) -> None: ...
    def moved(self, file: str, position: int) -> None: ...
    def noted(self, message: str) -> None: ...
    def ended(self, file: str, seconds: float) -> None: ...


def local_path(location: str) -> Path | None:
    """The path that a mirror or index means, or None if it is on the network."""
    if location.startswith("file://"):
        return Path(urllib.parse.unquote(urllib.parse.urlsplit(location).path))
    return None if location.startswith(_SCHEMES) else Path(location)


def address(mirror: str, file: str) -> str:
    """Where `file` is at a mirror: a URL or a path."""
    folder = local_path(mirror)
    return str(folder / file) if folder else f"{mirror.rstrip('/')}/{urllib.parse.quote(file)}"


class _Part:
    """The part of a file that there is so far, and its digest. Held by one process."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._size = size
        self._file = file
        self.position = 0
        self.digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self.position += len(chunk)
        self.digest.update(chunk)

    def append(self, chunk: bytes) -> None:
        with room(self._path, self._size - self.position, _REMEDY):
            self._file.write(chunk)
        self._count(chunk)

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.position, self.digest = 0, hashlib.sha256()

    def become(self, path: Path) -> None:
        """Renames the part as the whole file that it is."""
        with room(self._path, 0, _REMEDY):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._path.replace(path)


class Downloads:
    """A folder of downloads. `offline` keeps off the network."""

    def __init__(
        self,
        folder: Path,
        watcher: Watcher,
        *,
        offline: bool = False,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Touches nothing yet."""
        self.folder = folder
        self._watcher = watcher
        self._offline = offline
        self._limits = limits or Limits()
        self._clock = clock or Clock()
        self._web = Web(self._limits, self._clock)

    def close(self) -> None:
        """Ends the connections."""
        self._web.close()

    def get(self, artifact: Artifact, mirrors: Sequence[str]) -> Path:
        """The file, from the folder or the first mirror that has it.

        Raises FetchError with all that was tried, and when the disk is full; TrustError when all
        that came was something else.
        """
        whole = self.folder / artifact.sha256
        with room(self.folder, artifact.size, _REMEDY):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self._part(whole, artifact) as part:
            if part is None:
                return whole
            if part.position > artifact.size:
                part.restart()
            check_room(self.folder, artifact.size - part.position, _REMEDY)
            begun = self._clock.now()
            self._watcher.begun(artifact.file, artifact.size, part.position)
            self._persist(
                artifact.file,
                [address(mirror, artifact.file) for mirror in dict.fromkeys(mirrors)],
                lambda place: self._bring(artifact, place, part),
                lambda: part.position,
            )
            part.become(whole)
            self._watcher.ended(artifact.file, self._clock.now() - begun)
        return whole

    def missing(self, artifact: Artifact, mirrors: Sequence[str]) -> bool:
        """Whether the file is neither in the folder nor in a mirror that is a local folder."""
        places = [local_path(address(mirror, artifact.file)) for mirror in mirrors]
        return not any(
            place and place.is_file() for place in (self.folder / artifact.sha256, *places)
        )

    def read(self, url: str, limit: int) -> bytes:
        """A small file whose hash is not known. Raises FetchError."""

        def bring(place: str) -> bytes:
            data = b""
            response = self._web.open(place, 0)
            if place.startswith("https:") and not response.url.startswith("https:"):
                raise PermanentError(f"leads to a place without https: {shown(response.url)}")
            for chunk in self._web.stream(response):
                data += chunk
                if len(data) > limit:
                    raise PermanentError(f"is larger than {limit} bytes")
            return data

        return self._persist(url, [url], bring, lambda: 0)

    def prune(self, limit: int) -> None:
        """Removes what was used longest ago, until all takes at most `limit` bytes. Leaves what
        another process is downloading.
        """

        def remove(path: Path) -> None:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # parts are locked: see _part
                path.unlink()

        prune(self.folder.glob("*"), limit, remove)

    @contextlib.contextmanager
    def _part(self, whole: Path, artifact: Artifact) -> Iterator[_Part | None]:
        """The part, locked against other processes, or None when the whole file is there."""
        path = whole.with_name(f"{whole.name}.part")
        while True:
            if _is_whole(whole):
                yield None
                return
            with path.open("a+b") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._watcher.noted(
                        f"another process downloads {artifact.file}; waiting for it"
                    )
                    fcntl.flock(stream, fcntl.LOCK_EX)
                # Another process may have made it the whole file meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                        stream.seek(0)
                        yield _Part(path, stream, artifact.size)
                        return

    def _persist(
        self,
        what: str,
        places: Sequence[str],
        bring: Callable[[str], _T],
        position: Callable[[], int],
    ) -> _T:
        """What `bring` gives for the first of `places` that has it, in several rounds."""
        if self._offline:
            places = [place for place in places if local_path(place)]
        failures: list[str] = []
        untrusted = True
        left, rounds = list(places), 0
        while left:
            before, waits = position(), []
            for place in tuple(left):
                try:
                    return bring(place)
                except PermanentError as error:
                    untrusted &= error.untrusted
                    left.remove(place)
                    failure = f"{shown(place)} {error}"
                except TransientError as error:
                    untrusted = False
                    waits.append(min(error.wait, self._limits.longest_wait))
                    failure = f"{shown(place)} {error}"
                failures.append(failure)
                self._watcher.noted(failure)
            rounds = 1 if position() - before >= self._limits.progress else rounds + 1
            if not left or rounds >= self._limits.rounds:
                break
            wait = min(self._limits.first_wait * 2 ** (rounds - 1), self._limits.longest_wait)
            self._clock.sleep(max(wait * (0.5 + self._clock.chance() / 2), min(waits)))
        lines = [
            f"  {line}" + (f" ({count} times)" if count > 1 else "")
            for line, count in Counter(failures).items()
        ]
        if not lines:
            lines = ["  no mirror is known" + (" that is a local folder" if self._offline else "")]
        kind = TrustError if failures and untrusted else FetchError
        raise kind("\n".join([f"cannot fetch {shown(what)}:", *lines]))

    def _bring(self, artifact: Artifact, place: str, part: _Part) -> None:
        """Appends what is missing from one place, and checks the whole."""
        folder = local_path(place)
        if folder:
            part.restart()
        resumed = part.position
        if resumed < artifact.size:
            if folder:
                chunks = _read_local(folder, artifact.size)
            else:
                response = self._web.open(place, resumed)
                _check_size(response, artifact.size, part)
                resumed = part.position
                chunks = self._web.stream(response)
            for chunk in chunks:
                if part.position + len(chunk) > artifact.size:
                    part.restart()
                    raise PermanentError(
                        f"has more than the {artifact.size} bytes of the index", untrusted=True
                    )
                part.append(chunk)
                self._watcher.moved(artifact.file, part.position)
        if part.position < artifact.size:
            raise TransientError(f"ended after {part.position} of {artifact.size} bytes")
        digest = part.digest.hexdigest()
        if digest != artifact.sha256:
            part.restart()
            told = f"has SHA-256 {digest}, the index says {artifact.sha256}"
            if resumed:  # the part may have been at fault
                raise TransientError(f"{told} (after resuming; starting over)")
            raise PermanentError(told, untrusted=True)


def _check_size(response: Response, size: int, part: _Part) -> None:
    """Whether a response goes on where the part ends, or starts over, with a file of `size`."""
    offset, status = part.position, response.status_code
    total = response.headers.get("Content-Length", "")
    if status == 206:
        given = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", given)
        if not offset or match is None or int(match[1]) != offset:
            part.restart()
            response.close()
            raise TransientError(f"sent another range than from {offset} on: {given!r}")
        total = match[2]
    elif status == 416:
        part.restart()
        response.close()
        raise TransientError(f"has no byte {offset}; starting over")
    else:
        part.restart()
    if total.isdecimal() and int(total) != size:
        response.close()
        raise PermanentError(f"has {total} bytes, the index says {size}", untrusted=True)


def _read_local(path: Path, size: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                told = f"has {found} bytes, the index says {size}"
                raise PermanentError(told, untrusted=True)
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise PermanentError(f"cannot be read: {error.strerror}") from error


def _is_whole(path: Path) -> bool:
    """Whether a file is there and still what its name says. Removes a damaged one."""
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except FileNotFoundError:
        return False
    if digest.hexdigest() != path.name:
        path.unlink(missing_ok=True)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


def check_room(folder: Path, need: int, remedy: str) -> None:
    """Raises FetchError if `folder` has not `need` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise FetchError(
            f"{folder} has {free} bytes free, and about {need} are needed; make room, {remedy}"
        )


@contextlib.contextmanager
def room(path: Path, need: int, remedy: str) -> Iterator[None]:
    """Turns a disk that is full or refuses into a FetchError; `need` is in bytes."""
    try:
        yield
    except OSError as error:
        needed = f" (about {need} more bytes are needed there)" if error.errno in _FULL else ""
        raise FetchError(
            f"cannot write {error.filename or path}: {error.strerror}{needed}; make room, {remedy}"
        ) from error
