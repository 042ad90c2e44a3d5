"""Which index is used, and why it can be trusted.

The index that this aotbuild pins, and a local file that the user names, are trusted as they are.
One from the network is trusted only if a key signs it that the pinned index or the user names; if
it has not expired; and if its serial is not below the pinned one's, nor below the highest that
was ever seen of that key and version, so that nobody can pass off a withdrawn index as the latest.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aotbuild
from aotbuild.cache import locked
from aotbuild.download import Downloads, local_path
from aotbuild.errors import FetchError, TrustError
from aotbuild.index import INDEX_FILE, Index, read_index
from aotbuild.pack import write_file
from aotbuild.shipped import shipped
from aotbuild.signature import verify
from aotbuild.web import shown

_SERIALS = "index-serials.json"
_MAX_INDEX = 16 << 20
_MAX_SIGNATURE = 1 << 16


@dataclass(frozen=True)
class FoundIndex:
    """An index, where it was, and the folder (URL or path) that its artifacts may lie in."""

    index: Index
    where: str
    folder: str


def pinned_index() -> FoundIndex:
    """The index that this version of aotbuild pins. Its artifacts lie at its mirrors alone."""
    return FoundIndex(_read(shipped(INDEX_FILE)).index, "the index of this aotbuild", "")


def find_index(
    location: str,
    downloads: Downloads,
    *,
    cache_dir: Path,
    keys: Sequence[str] = (),
    unsigned: bool = False,
    offline: bool = False,
    now: dt.datetime | None = None,
) -> FoundIndex:
    """The index at `location`: a URL or path of the file or of its folder, or "" for the pinned.

    `keys` take the place of the pinned index's. `unsigned` goes on without a signature. `now` is
    for tests. Raises IndexFileError, FetchError, and TrustError, which says what to do.
    """
    if not location:
        found = pinned_index()
    elif (path := local_path(location)) is not None:
        found = _read(path / INDEX_FILE if path.is_dir() else path)
    elif offline:
        raise FetchError(
            f"the index {shown(location)} is on the network, and offline is set; name a local "
            "file or folder with --index"
        )
    else:
        pinned = pinned_index().index
        found, key = _download(location, downloads, None if unsigned else keys or pinned.keys)
        _check_time(found, now or dt.datetime.now(dt.timezone.utc))
        _check_version(found)
        _check_serial(found, cache_dir, key, pinned.serial)
        return found
    _check_version(found)
    return found


def _read(path: Path) -> FoundIndex:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FetchError(f"cannot read index {path}: {error.strerror}") from error
    return FoundIndex(read_index(data, str(path)), str(path), str(path.parent))


def _download(url: str, downloads: Downloads, keys: Sequence[str] | None) -> tuple[FoundIndex, str]:
    """The index and the one of `keys` that signed it; "" if keys do not matter (None)."""
    url = url if url.endswith(".json") else f"{url.rstrip('/')}/{INDEX_FILE}"
    data, key = downloads.read(url, _MAX_INDEX), ""
    if keys is not None:
        try:
            signature = downloads.read(f"{url}.sig", _MAX_SIGNATURE)
        except FetchError as error:
            raise TrustError(
                f"{shown(url)}: its signature cannot be had, so it is not trusted "
                f"(--allow-unsigned goes on without): {error}"
            ) from error
        key = verify(data, signature.decode("utf-8", "replace"), keys, shown(url))
    return FoundIndex(read_index(data, shown(url)), shown(url), url.rpartition("/")[0]), key


def _check_time(found: FoundIndex, now: dt.datetime) -> None:
    if found.index.expires <= now:
        raise TrustError(
            f"{found.where} expired on {found.index.expires:%Y-%m-%d %H:%M} UTC (it is "
            f"{now:%Y-%m-%d %H:%M} now): a mirror that is out of date, or a wrong clock here. Try "
            "another mirror, or use the pinned index (without --index)"
        )


def _check_serial(found: FoundIndex, cache_dir: Path, key: str, pinned: int) -> None:
    """Refuses a serial that goes back, and keeps that of an index which `key` signed."""
    serial, file = found.index.serial, cache_dir / _SERIALS
    name = f"{key} {'.'.join(_minor(found.index.version))}"
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with locked(cache_dir):
            serials = _seen(file)
            seen = serials.get(name, 0)
            if serial < max(pinned, seen):
                which = "this aotbuild pins" if pinned >= seen else f"was seen ({file})"
                raise TrustError(
                    f"{found.where} has serial {serial}, and {max(pinned, seen)} {which}: it was "
                    "withdrawn, and may not come back. Try another mirror"
                )
            if key and serial > seen:
                write_file(file, json.dumps({**serials, name: serial}, indent=1).encode("ascii"))
    except OSError as error:
        raise FetchError(
            f"cannot keep the index's serial in {file}: {error.strerror}; set another folder "
            "with cache_dir"
        ) from error


def _seen(path: Path) -> dict[str, int]:
    """The highest serial by key and version."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TrustError(f"cannot read {path}, the serials of indexes seen: {error}") from error
    if isinstance(data, dict) and all(type(serial) is int for serial in data.values()):
        return dict(data)
    raise TrustError(f"{path}: expected serials by key and version, got {str(data)[:200]}")


def _check_version(found: FoundIndex) -> None:
    if _minor(aotbuild.__version__) != _minor(found.index.version):
        raise FetchError(
            f"{found.where} is for aotbuild {found.index.version}, and this is "
            f"{aotbuild.__version__}, whose packs may differ; use the aotbuild that belongs to it"
        )


def _minor(version: str) -> list[str]:
    return re.findall(r"\d+", version)[:2]
