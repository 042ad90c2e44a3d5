"""Verdicts on arch lists as people type them."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotbuild.errors import FetchError, UsageError
from aotbuild.index import Artifact, Index, PublishedArch
from aotbuild.select import artifacts, select
from aotbuild.target import ARCHES


def _pack(arch: str, family: str = "attention") -> Artifact:
    file = f"aotbuild-images-{family}-{arch}-0.1.0.tar.gz"
    sha = hashlib.sha256(file.encode()).hexdigest()
    return Artifact("images", file, 1000, sha, arch, family, sha, contracts={f"{family}.x": 1})


def _index(*packs: Artifact) -> Index:
    arches = (*(arch.name for arch in ARCHES), "gfx1300")
    return Index(
        version="0.1.7", serial=1, expires=dt.datetime(2030, 1, 1, tzinfo=dt.timezone.utc),
        mirrors=(), keys=(), arches=tuple(PublishedArch(n, "hip", "stable") for n in arches),
        artifacts=packs,
    )  # fmt: skip


INDEX = _index(*map(_pack, ("gfx90a", "gfx942", "gfx950", "gfx1100", "sm_90")))


@pytest.mark.parametrize("texts", [[], [""], [" "], [",;", "\n"]])
def test_nothing_named_is_an_error(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="no arch named"):
        select(INDEX, texts, ())


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("gfx11-generic", "'gfx11-generic' is a generic target; .* Name the arches"),
        ("gfx9-4-generic", "generic target"),
        ("gfx1030", "unknown arch 'gfx1030'. Did you mean"),
        ("gfx94", "unknown arch 'gfx94'"),
        ("gfx", "unknown arch 'gfx'"),
        ("gfx9*", "unknown arch"),
        ("mi300", "unknown arch 'mi300'"),
        ("native", "unknown arch 'native'"),
        ("90-virtual", "asks for PTX"),
        ("gfx942:fast+", "unknown feature 'fast\\+'"),
        ("gfx1300", "The index has it: use aotbuild 0.1.7"),
        ("gfx1201", "nothing of attention is published for gfx1201 .* aotbuild compile --arch"),
    ],
)
def test_a_word_that_nothing_serves_says_why_and_leaves_the_rest(word: str, reason: str) -> None:
    verdicts = select(INDEX, [f"gfx942,{word}"], ())
    assert [verdict.word for verdict in verdicts] == ["gfx942", word]
    assert (verdicts[1].artifacts, verdicts[1].complete) == ((), False)
    assert artifacts(verdicts) == (_pack("gfx942"),)
    for texts, strict in (([word], False), ([word, "gfx942"], True)):
        with pytest.raises((UsageError, FetchError), match=f"(?s)\n  {word[:4]}.*{reason}"):
            select(INDEX, texts, (), strict=strict)


def test_an_error_shows_every_verdict_and_whether_the_command_was_wrong() -> None:
    with pytest.raises(UsageError, match=r"(?s)gfx1030: unknown.*gfx11-generic: arch.*generic"):
        select(INDEX, ["gfx1030;gfx11-generic"], ())
    with pytest.raises(FetchError, match=r"(?s)gfx1030: unknown.*gfx1201: nothing"):
        select(INDEX, ["gfx1030;gfx1201"], ())
    with pytest.raises(FetchError, match=r"(?s)not every arch.*gfx942: served\n  gfx1030: unknown"):
        select(INDEX, ["gfx942 gfx1030"], (), strict=True)


@pytest.mark.parametrize(
    ("text", "arches"),
    [
        ("gfx942,gfx950", ["gfx942", "gfx950"]),
        ("gfx942;gfx950", ["gfx942", "gfx950"]),
        (" gfx942 ,; gfx950\n", ["gfx942", "gfx950"]),
        ("gfx90a:xnack-", ["gfx90a"]),
        ("gfx90a:sramecc+:xnack-;GFX90A", ["gfx90a", "gfx90a"]),
        ("9.0a;sm90;90-real", ["sm_90", "sm_90", "sm_90"]),
    ],
)
def test_usual_spellings(text: str, arches: list[str]) -> None:
    verdicts = select(INDEX, [text], (), strict=True)
    assert [verdict.arch for verdict in verdicts] == arches
    for verdict in verdicts:
        assert [item.arch for item in verdict.artifacts] == [verdict.arch]
    assert len(artifacts(verdicts)) == len(set(arches))


def test_what_should_be_known_of_a_pack_is_said() -> None:
    settings, untested = select(INDEX, ["gfx90a:xnack-", "gfx1100"], ())
    assert settings.note == "serves gfx90a with any setting"
    assert untested.note == "experimental: less tested"


def test_families() -> None:
    index = _index(*INDEX.artifacts, _pack("gfx942", "norm"))
    first, second = select(index, ["gfx942,gfx950"], ())
    assert [item.family for item in first.artifacts] == ["attention", "norm"]
    assert second.note == "nothing of norm is published for gfx950"
    assert (first.complete, second.complete) == (True, False)
    with pytest.raises(FetchError, match="nothing of norm is published for gfx950"):
        select(index, ["gfx942,gfx950"], (), strict=True)
    (one,) = select(index, ["gfx942"], ("norm", "norm"))
    assert [item.family for item in one.artifacts] == ["norm"]
    with pytest.raises(UsageError, match=r"unknown family 'atention'\. Did you mean 'attention'"):
        select(index, ["gfx942"], ("atention",))
    with pytest.raises(FetchError, match="nothing of norm is published for gfx950"):
        select(index, ["gfx950"], ("norm",))


def test_an_index_without_packs_says_what_to_do() -> None:
    with pytest.raises(FetchError, match=r"gfx942: nothing is published .* aotbuild compile"):
        select(_index(), ["gfx942"], ())


@given(st.lists(st.text(alphabet="gfx0123456789as_m:+-", max_size=12), max_size=4))
def test_never_silent_and_never_another_arch(words: list[str]) -> None:
    told = ""
    try:
        verdicts = select(INDEX, words, ())
    except (UsageError, FetchError) as error:
        told = str(error)
    if told:
        assert all(word in told for word in words)
        return
    assert {verdict.word for verdict in verdicts} == set(filter(None, words))
    for verdict in verdicts:
        assert verdict.note or verdict.artifacts
        assert all(item.arch == verdict.arch for item in verdict.artifacts)
