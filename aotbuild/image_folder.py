"""A folder of packs that `fetch` keeps: `<folder>/<arch>/<family>.aotpack`, and a lock file.

The lock file, `aotbuild.lock.json`, is an index (docs/release-index.md) of just the packs that are
there, so `aotbuild fetch --locked` can bring the same ones anywhere.

Packs change in one transaction. All that is to come is unpacked and checked in
`<folder>/.incoming` first. Then the lock file to be is written there, whole: from that moment
the change happens, since whoever opens the folder next finishes it. Before, it has not happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from aotbuild.archive import extract
from aotbuild.download import check_room, room
from aotbuild.errors import AotbuildError, FetchError, TrustError
from aotbuild.index import Artifact, Index, read_index, write_index
from aotbuild.pack import open_pack, sync_folder, write_file

LOCK_FILE = "aotbuild.lock.json"
_INCOMING = ".incoming"
_GUARD = ".lock"
#: Packs are compressed already, so no archive of one inflates by much.
_INFLATION = 32
_REMEDY = "or name another folder with --to"


class ImageFolder:
    """The folder, held by one process: see `held`."""

    def __init__(self, folder: Path) -> None:
        """For a folder that this process holds or only looks at."""
        self.folder = folder
        self._incoming = folder / _INCOMING

    def path(self, artifact: Artifact) -> Path:
        """Where a pack is."""
        return self.folder / artifact.arch / f"{artifact.family}.aotpack"

    def locked(self) -> Index | None:
        """What the lock file says is there. Raises IndexFileError if it is damaged."""
        return _read_lock(self.folder / LOCK_FILE)

    def has(self, artifact: Artifact) -> bool:
        """Whether just this pack is in its place, undamaged."""
        try:
            return open_pack(self.path(artifact)).pack_id == artifact.pack_id
        except AotbuildError:
            return False

    def check_free(self, artifacts: Sequence[Artifact]) -> None:
        """Raises FetchError if a pack that `fetch` did not put there is in the way."""
        locked = self.locked()
        ours = {self.path(item) for item in locked.artifacts} if locked else set()
        for artifact in artifacts:
            path = self.path(artifact)
            if path.exists() and path not in ours and not self.has(artifact):
                raise FetchError(
                    f"{path} is in the way: fetch did not put it there. Move it away, {_REMEDY}"
                )

    def stage(self, artifact: Artifact, archive: Path) -> None:
        """Unpacks an archive aside. Raises TrustError if it is not just the pack that the index
        says, FetchError if there is no room.
        """
        check_room(self.folder, 2 * artifact.size, _REMEDY)  # extract inflates it, then copies
        aside = self._staging(artifact)
        limit = _INFLATION * artifact.size + (1 << 20)
        with room(self.folder, 2 * artifact.size, _REMEDY):
            names = extract(archive, aside, limit=limit)
        name = f"{artifact.arch}/{artifact.family}.aotpack"
        if names != (name,):
            raise TrustError(
                f"{artifact.file} holds {', '.join(names)}; expected {name} and nothing else"
            )
        for made in (aside / artifact.arch, aside):
            sync_folder(made)
        pack = open_pack(aside / name)
        facts = (
            ("arch", pack.arch, artifact.arch),
            ("family", pack.family, artifact.family),
            ("pack_id", pack.pack_id, artifact.pack_id),
            ("contracts", pack.contracts, dict(artifact.contracts)),
        )
        for what, found, expected in facts:
            if found != expected:
                raise TrustError(
                    f"{artifact.file}: {what} of its pack is {found!r}, the index says {expected!r}"
                )

    def commit(self, lock: Index) -> None:
        """Puts all that was staged in its place, with `lock` as the lock file."""
        data = write_index(lock)
        with room(self.folder, len(data), _REMEDY):
            self._incoming.mkdir(exist_ok=True)
            sync_folder(self._incoming)
            write_file(self._incoming / LOCK_FILE, data)
        self._finish()

    def recover(self) -> None:
        """Finishes a change that was decided, or drops what was staged of one that was not."""
        if (self._incoming / LOCK_FILE).exists():
            self._finish()
        else:
            self._drop()

    def _finish(self) -> None:
        """May be interrupted and repeated at any point."""
        coming = _read_lock(self._incoming / LOCK_FILE)
        present = self.locked()
        if coming is None:
            return
        kept = {self.path(item) for item in coming.artifacts}
        with room(self.folder, 0, _REMEDY):
            for item in coming.artifacts:
                staged = self._staging(item) / item.arch / f"{item.family}.aotpack"
                if staged.exists():  # else it has been moved, or was in its place already
                    self.path(item).parent.mkdir(exist_ok=True)
                    staged.replace(self.path(item))
                    sync_folder(self.path(item).parent)
            for item in present.artifacts if present else ():
                if self.path(item) not in kept:
                    self.path(item).unlink(missing_ok=True)
                    with contextlib.suppress(OSError):  # other packs are in it
                        self.path(item).parent.rmdir()
            sync_folder(self.folder)
            (self._incoming / LOCK_FILE).replace(self.folder / LOCK_FILE)
            sync_folder(self.folder)
        self._drop()

    def _staging(self, artifact: Artifact) -> Path:
        return self._incoming / artifact.sha256

    def _drop(self) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)


@contextlib.contextmanager
def held(folder: Path, waiting: Callable[[str], None]) -> Iterator[ImageFolder]:
    """The folder, made if need be and closed to other processes; what an earlier process left
    in the middle is finished or dropped first, and what this one stages and does not commit at
    the end. `waiting` is told when another process has it.
    """
    with room(folder, 0, _REMEDY):
        folder.mkdir(parents=True, exist_ok=True)
        guard = (folder / _GUARD).open("a")
    with guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting(f"another process changes {folder}; waiting for it")
            fcntl.flock(guard, fcntl.LOCK_EX)
        images = ImageFolder(folder)
        images.recover()
        try:
            yield images
        except BaseException:
            images.recover()
            raise


def _read_lock(path: Path) -> Index | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return read_index(data, str(path))
