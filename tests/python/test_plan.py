"""Planning: keys, order, profiles; the attention family for every arch; broken descriptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotbuild.errors import SpecError
from aotbuild.families import LoadedFamily, builtin_families, load_family
from aotbuild.plan import Profile, check_axes, keys, plan
from aotbuild.spec import Axis, Family, Match, value
from aotbuild.target import ARCHES, Arch, parse_arch

CONTRACT = Path(__file__).parent.parent / "families" / "contract"


@pytest.fixture(scope="module")
def attention() -> LoadedFamily:
    return load_family(builtin_families() / "attention")


def arch_named(name: str) -> Arch:
    return parse_arch(name).arch


def test_equal_axis_behind_another_is_refused(attention: LoadedFamily) -> None:
    operator = attention.family.operator("forward")
    bad = replace(operator, axes=(operator.axes[1], operator.axes[0]))
    with pytest.raises(SpecError, match="EQUAL axes must come before"):
        check_axes(bad)


@pytest.mark.parametrize(
    "axis",
    [
        Axis("padded", (0, 1), Match.SLACK),
        Axis("padded", (0, 1), Match.SLACK, of="nowhere"),
        Axis("windowed", (0, 1), Match.AT_LEAST),
        Axis("windowed", (0, 1), Match.AT_LEAST, value("windowed"), of="head_dim"),
    ],
)
def test_axis_with_the_wrong_source_is_refused(attention: LoadedFamily, axis: Axis) -> None:
    operator = attention.family.operator("forward")
    with pytest.raises(SpecError):
        check_axes(replace(operator, axes=(*operator.axes[:2], axis)))


def test_family_with_nothing_to_build_is_an_error(attention: LoadedFamily) -> None:
    operators = (
        replace(operator, valid=lambda arch, key, promise: False)
        for operator in attention.family.operators
    )
    empty = replace(attention, family=Family("attention", tuple(operators)))
    with pytest.raises(SpecError, match="nothing to build"):
        plan(empty, ARCHES[0], Profile.STANDARD)


@pytest.mark.parametrize("arch", ARCHES, ids=lambda arch: arch.name)
@pytest.mark.parametrize("profile", list(Profile))
def test_every_arch_has_a_complete_plan(
    attention: LoadedFamily, arch: Arch, profile: Profile
) -> None:
    variants = plan(attention, arch, profile)
    names = [variant.name for variant in variants]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and name.isprintable() for name in names)


def test_smoke_is_one_general_variant_per_operator_dtype_and_head_dim(
    attention: LoadedFamily,
) -> None:
    variants = plan(attention, arch_named("sm_90"), Profile.SMOKE)
    classes = {(v.operator, dict(v.key)["dtype"], dict(v.key)["head_dim"]) for v in variants}
    assert len(variants) == len(classes) == 15 * len(attention.family.operators)
    assert {v.promise for v in variants} == {"any"}


def test_standard_has_one_chosen_config_a_key_and_full_has_more(attention: LoadedFamily) -> None:
    arch = arch_named("gfx942")
    standard = plan(attention, arch, Profile.STANDARD)
    full = plan(attention, arch, Profile.FULL)
    assert all(variant.chosen for variant in standard)
    assert [v for v in full if v.chosen] == list(standard)
    assert len(full) > len(standard)


def test_tf32_keys_only_where_the_arch_has_such_units(attention: LoadedFamily) -> None:
    def tf32(name: str) -> set[object]:
        found = keys(attention.family.operator("forward"), arch_named(name))
        return {key["dtype"] for key, _ in found if key["tf32"]}

    assert tf32("gfx950") == set()
    assert tf32("gfx942") == {"fp32"}
    assert tf32("sm_80") == {"fp32"}


def test_wide_promise_is_an_amd_matter(attention: LoadedFamily) -> None:
    def promises(name: str) -> set[str]:
        return {v.promise for v in plan(attention, arch_named(name), Profile.STANDARD)}

    assert promises("sm_90") == {"aligned", "any"}
    assert promises("gfx950") == {"aligned", "wide", "any"}
