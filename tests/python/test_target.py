"""Arch names as people type them, and the table against the compiler."""

from __future__ import annotations

import csv
import importlib
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotbuild.errors import UsageError
from aotbuild.target import (
    ARCHES,
    Arch,
    ArchSpec,
    Features,
    known_arches,
    parse_arch,
    parse_arch_list,
)

_ABI_VERSION = 8
_E_FLAGS = 48


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gfx943", "unknown arch 'gfx943'. Did you mean 'gfx942'?"),
        ("sm_91", "Did you mean 'sm_90'?"),
        ("hopper", "unknown arch 'hopper'. Known: gfx90a, gfx942,"),
        ("gfx9420", "unknown arch 'gfx9420'"),
        ("xgfx942", "unknown arch 'xgfx942'"),
        ("gfx942-", "unknown arch 'gfx942-'"),
        ("sm__90", "unknown arch"),
        ("9.0.0", "unknown arch"),
        ("9", "unknown arch '9'"),
        ("\u0669\u0660", "unknown arch"),  # digits, but not ASCII
        ("", "unknown arch ''"),
        ("gfx11-generic", "'gfx11-generic' is a generic target"),
        ("gfx9-4-generic", "'gfx9-4-generic' is a generic target"),
        ("8.0a", "form 'a' of sm_80 is not built. Write 'sm_80'"),
        ("sm_100f", "form 'f' of sm_100 is not built. Write 'sm_100'"),
        ("90-virtual", "'90-virtual' asks for PTX"),
        ("gfx942:xnak+", "unknown feature 'xnak+'; gfx942 has: sramecc+ or sramecc-, xnack+"),
        ("gfx942:xnack", "unknown feature 'xnack'; "),
        ("gfx942:", "unknown feature ''"),
        ("gfx942:xnack+:xnack-", "feature 'xnack' is both on and off"),
        ("gfx1100:xnack-", "unknown feature 'xnack-'; gfx1100 has: none"),
        ("sm_90:xnack+", "sm_90 has: none"),
    ],
)
def test_wrong_names_say_what_is_right(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arch(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("texts", [[], [""], [" ,; ", "\n"]])
def test_a_list_must_name_an_arch(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="no arch named"):
        parse_arch_list(texts)


def test_one_unknown_arch_spoils_a_list() -> None:
    with pytest.raises(UsageError, match="gfx943"):
        parse_arch_list(["gfx942,gfx943"])


@pytest.mark.parametrize(
    "text",
    [
        "sm_90",
        "sm90",
        "SM_90",
        "SM_90A",
        "sm_90a",
        "9.0",
        "9.0a",
        "90",
        "90a",
        "compute_90",
        "90-real",
    ],
)
def test_spellings_of_sm_90(text: str) -> None:
    assert parse_arch(text) == ArchSpec(_arch("sm_90"))


@pytest.mark.parametrize(
    ("text", "name"), [("10.0", "sm_100"), ("120", "sm_120"), ("8.6", "sm_86")]
)
def test_capabilities_of_any_length(text: str, name: str) -> None:
    assert parse_arch(text).arch.name == name


def test_words_have_the_verdicts_that_cmake_gives() -> None:
    """tests/cmake/test_arch_words.py reads the same table."""
    with (Path(__file__).parents[1] / "data" / "arch_words.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 40
    for row in rows:
        try:
            verdict = parse_arch(row["word"]).arch.name
        except UsageError as error:
            verdict = str(error)
        assert row["arch"] == verdict or (not row["arch"] and row["reason"] in verdict), row


def test_features_are_values_not_text() -> None:
    spec = parse_arch(" GFX942:xnack-:sramecc+ ")
    assert spec == parse_arch("gfx942:sramecc+:xnack-")
    assert hash(spec) == hash(parse_arch("gfx942:sramecc+:xnack-"))
    assert spec.features == Features(sramecc=True, xnack=False)
    assert str(spec) == "gfx942:sramecc+:xnack-"
    assert spec != parse_arch("gfx942")


def test_a_list_keeps_its_order_and_drops_repeats() -> None:
    found = parse_arch_list(["gfx950, sm_90;GFX942:xnack+", "9.0\tgfx942 sm_80"])
    assert [str(spec) for spec in found] == ["gfx950", "sm_90", "gfx942:xnack+", "sm_80"]


_FEATURE = st.sampled_from([None, True, False])
_SPECS = st.sampled_from(ARCHES).flatmap(
    lambda arch: st.builds(
        ArchSpec,
        st.just(arch),
        st.builds(Features, _FEATURE, _FEATURE)
        if arch.name in ("gfx90a", "gfx942", "gfx950")
        else st.just(Features()),
    )
)


@given(
    specs=st.lists(_SPECS, min_size=1, unique_by=lambda spec: spec.arch.name),
    separators=st.lists(st.text(",; \t\n", min_size=1, max_size=3), min_size=30, max_size=30),
    upper=st.booleans(),
)
def test_lists_round_trip(specs: list[ArchSpec], separators: list[str], upper: bool) -> None:
    text = "".join(f"{spec}{mark}" for spec, mark in zip(specs, separators, strict=False))
    assert parse_arch_list([text.upper() if upper else text]) == tuple(specs)


def test_the_table_agrees_with_itself() -> None:
    names = [arch.name for arch in ARCHES]
    assert len(set(names)) == len(names)
    assert known_arches() == ", ".join(names)
    for arch in ARCHES:
        assert parse_arch(arch.name).arch is arch
        assert parse_arch(arch.name) == ArchSpec(arch)
        if arch.tuning:
            assert _arch(arch.tuning).tuning == ""
            assert _arch(arch.tuning).vendor == arch.vendor
        assert arch.vendor == ("hip" if arch.name.startswith("gfx") else "cuda")
        assert arch.warp_size == (64 if arch.family.startswith("CDNA") else 32)
    flags = [(arch.vendor, arch.elf_flags) for arch in ARCHES]
    assert len(set(flags)) == len(flags)


_KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def zero(out):
    tl.store(out + tl.arange(0, 32), 0)
"""


@pytest.mark.parametrize("arch", ARCHES, ids=lambda arch: arch.name)
def test_elf_flags_and_warp_size_are_the_compilers(
    arch: Arch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    (tmp_path / "zero_kernel.py").write_text(_KERNEL, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "zero_kernel", raising=False)
    zero_kernel = importlib.import_module("zero_kernel")

    number = int(arch.name.removeprefix("sm_")) if arch.vendor == "cuda" else arch.name
    compiled = triton.compile(
        ASTSource(zero_kernel.zero, signature={"out": "*i32"}),
        target=GPUTarget(arch.vendor, number, arch.warp_size),
        options={"enable_fp_fusion": True},
    )
    code = compiled.asm["cubin" if arch.vendor == "cuda" else "hsaco"]
    (flags,) = struct.unpack_from("<I", code, _E_FLAGS)
    if arch.vendor == "cuda":
        shift = 8 if code[_ABI_VERSION] >= 8 else 0  # older arches keep it in the lowest byte
        assert flags >> shift & 0xFF == arch.elf_flags
    else:
        assert flags & 0xFF == arch.elf_flags
        # The kernel descriptor's wavefront size, from the metadata note.
        assert b".wavefront_size" + bytes([arch.warp_size]) in code


def _arch(name: str) -> Arch:
    return parse_arch(name).arch
