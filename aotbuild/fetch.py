"""Brings published packs into a folder that the runtime searches: those that were asked for, the
right ones, and all of them or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotbuild.download import Downloads, Watcher, address
from aotbuild.errors import FetchError, UsageError
from aotbuild.families import load_families
from aotbuild.image_folder import ImageFolder, held
from aotbuild.index import Artifact, Index
from aotbuild.select import Verdict, artifacts, select
from aotbuild.trust import FoundIndex, find_index
from aotbuild.web import shown

if TYPE_CHECKING:
    from aotbuild.config import Settings


@dataclass(frozen=True)
class Plan:
    """What a fetch is about to do: the packs that it wants in the folder, and the URLs and local
    folders that they may come from, in order.
    """

    found: FoundIndex
    verdicts: tuple[Verdict, ...]
    wanted: tuple[Artifact, ...]
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a fetch did. `present` are packs that were in their place, `fetched` those that came,
    `removed` those of another version that went.
    """

    folder: Path
    fetched: tuple[Artifact, ...]
    present: tuple[Artifact, ...]
    removed: tuple[Artifact, ...]


def downloads(settings: Settings, watcher: Watcher) -> Downloads:
    """The downloads of these settings."""
    return Downloads(settings.cache_dir / "downloads", watcher, offline=settings.offline)


def plan(arches: Sequence[str], settings: Settings, store: Downloads, *, locked: str = "") -> Plan:
    """What the arch lists `arches` come to. `locked` names a lock file, which takes the place of
    the index; all that is in it is wanted when no arch is named. Raises as `select` and
    `find_index`, and FetchError for packs that this aotbuild cannot call.
    """
    if locked and settings.index:
        raise UsageError(
            f"--locked {locked} and index {shown(settings.index)} each say what to fetch; give one "
            "(--mirror says where from)"
        )
    found = find_index(
        locked or settings.index,
        store,
        cache_dir=settings.cache_dir,
        keys=settings.key,
        unsigned=settings.allow_unsigned,
        offline=settings.offline,
    )
    index = found.index
    if locked and not arches:
        arches = list(dict.fromkeys(a.arch for a in index.artifacts if a.kind == "images"))
    verdicts = select(index, arches, settings.family, strict=settings.strict_arch)
    wanted = artifacts(verdicts)
    _check_contracts(wanted, settings.kernels)
    beside = (found.folder,) if found.folder and not locked else ()
    mirrors = tuple(dict.fromkeys((*settings.mirror, *beside, *index.mirrors)))
    return Plan(found, verdicts, wanted, mirrors)


def sources(plan: Plan, artifact: Artifact) -> tuple[str, ...]:
    """Where a pack may come from: URLs and paths."""
    return tuple(shown(address(mirror, artifact.file)) for mirror in plan.mirrors)


def carry_out(plan: Plan, settings: Settings, store: Downloads, watcher: Watcher) -> Outcome:
    """Brings what is not there yet. Killed at any point, it leaves what was there or what was to
    be there, or the next fetch finishes it. Raises FetchError, TrustError and PackError.
    """
    with held(settings.fetch_to, watcher.noted) as images:
        present = tuple(item for item in plan.wanted if images.has(item))
        needed = tuple(item for item in plan.wanted if item not in present)
        images.check_free(needed)
        if settings.offline:
            _check_offline(needed, plan.mirrors, store)
        for artifact in needed:
            images.stage(artifact, store.get(artifact, plan.mirrors))
        lock, removed = _lock(plan, images)
        if needed or lock != images.locked():
            images.commit(lock)
    store.prune(settings.cache_limit)
    return Outcome(settings.fetch_to, needed, present, removed)


def _lock(plan: Plan, images: ImageFolder) -> tuple[Index, tuple[Artifact, ...]]:
    """The lock file of the folder as it will be, and the packs that leave it: a folder holds packs
    of one version, or packs of an older one would be shipped with the newer.
    """
    index, locked = plan.found.index, images.locked()
    places = {images.path(item) for item in plan.wanted}
    there = locked.artifacts if locked else ()
    others = tuple(item for item in there if images.path(item) not in places)
    same = locked is not None and locked.version == index.version
    web = tuple(place for place in plan.mirrors if place.startswith("http") and "@" not in place)
    content = sorted((*plan.wanted, *(others if same else ())), key=lambda item: item.file)
    lock = dataclasses.replace(index, mirrors=web, artifacts=tuple(content))
    return lock, () if same else others


def _check_contracts(wanted: Sequence[Artifact], kernels: Sequence[Path]) -> None:
    known = {
        f"{family.name}.{operator.name}": operator.contract
        for family in load_families((), kernels)
        for operator in family.family.operators
    }
    for artifact in wanted:
        for name, contract in artifact.contracts.items():
            if known.get(name, contract) != contract:
                raise FetchError(
                    f"{artifact.file} has contract {contract} of {name}, and this aotbuild calls "
                    f"contract {known[name]}; use the aotbuild that belongs to the index"
                )


def _check_offline(needed: Sequence[Artifact], mirrors: Sequence[str], store: Downloads) -> None:
    missing = [item for item in needed if store.missing(item, mirrors)]
    if missing:
        lines = [f"  {item.file} ({item.size} bytes, SHA-256 {item.sha256})" for item in missing]
        what = f"offline is set, and neither {store.folder} nor a mirror that is a local folder has"
        raise FetchError("\n".join([f"{what}:", *lines]))
