"""Which packs of an index serve the arches that someone named, with the reason where none does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotbuild.errors import AotbuildError, FetchError, UsageError
from aotbuild.nearest import did_you_mean
from aotbuild.target import arch_words, parse_arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotbuild.index import Artifact, Index


@dataclass(frozen=True)
class Verdict:
    """What came of one word of an arch list.

    `arch` is the arch it means, empty if it means none. `artifacts` are the packs for it. `note`
    says why there is none, or not one for every family, and the remedy; or what should be known
    of what there is. `complete`: every family that was asked for is there.
    """

    word: str
    arch: str
    artifacts: tuple[Artifact, ...]
    note: str
    complete: bool


def select(
    index: Index, texts: Iterable[str], families: Sequence[str], *, strict: bool = False
) -> tuple[Verdict, ...]:
    """One verdict for each word of the arch lists `texts`, in order. No `families` means all.

    Words that no pack serves are left out, and say why, as long as one is served. Raises
    UsageError when nothing is named or a family is unknown; and, with all verdicts, UsageError or
    FetchError when no word is served, or with `strict` when one is not.
    """
    words = arch_words(texts)
    packs = [item for item in index.artifacts if item.kind == "images"]
    known = sorted({item.family for item in packs})
    for family in families:
        if packs and family not in known:
            raise UsageError(
                f"unknown family {family!r}.{did_you_mean(family, known)} "
                f"The index of aotbuild {index.version} has: {', '.join(known)}"
            )
    wanted = tuple(dict.fromkeys(families)) or tuple(known)
    verdicts = tuple(_verdict(index, word, wanted) for word in words)
    if strict and not all(verdict.complete for verdict in verdicts):
        raise _error("not every arch is served, and strict_arch is set", verdicts)
    if not any(verdict.artifacts for verdict in verdicts):
        raise _error("no pack serves what was named", verdicts)
    return verdicts


def artifacts(verdicts: Iterable[Verdict]) -> tuple[Artifact, ...]:
    """What the verdicts take, each once."""
    found = {item.file: item for verdict in verdicts for item in verdict.artifacts}
    return tuple(found.values())


def _verdict(index: Index, word: str, families: Sequence[str]) -> Verdict:
    try:
        spec = parse_arch(word)
    except UsageError as error:
        return Verdict(word, "", (), f"{error}{_later(index, word)}", complete=False)
    name = spec.arch.name
    there = {
        item.family: item for item in index.artifacts if item.kind == "images" and item.arch == name
    }
    found = tuple(there[family] for family in families if family in there)
    missing = [family for family in families if family not in there]
    if not found:
        what = f" of {', '.join(families)}" if families else ""
        note = (
            f"nothing{what} is published for {name} with aotbuild {index.version}; "
            f"compile it: aotbuild compile --arch {name}"
        )
        return Verdict(word, name, (), note, complete=False)
    notes = [f"nothing of {', '.join(missing)} is published for {name}"] if missing else []
    if spec.arch.tier != "stable":
        notes.append(f"{spec.arch.tier}: less tested")
    if str(spec.features):
        notes.append(f"serves {name} with any setting")
    return Verdict(word, name, found, "; ".join(notes), complete=not missing)


def _later(index: Index, word: str) -> str:
    """For an arch that only a later aotbuild knows."""
    name = word.lower().partition(":")[0]
    if all(arch.name != name for arch in index.arches):
        return ""
    return f". The index has it: use aotbuild {index.version}"


def _error(what: str, verdicts: Sequence[Verdict]) -> AotbuildError:
    lines = [f"  {verdict.word}: {verdict.note or 'served'}" for verdict in verdicts]
    kind = FetchError if any(verdict.arch for verdict in verdicts) else UsageError
    return kind("\n".join([f"{what}:", *lines]))
