"""From descriptions, an arch and a profile to the variants to compile. Pure."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotbuild.errors import SpecError
from aotbuild.spec import Key, Match, Operator, Promise
from aotbuild.target import Arch
from aotbuild.tuning import load_table

if TYPE_CHECKING:
    from aotbuild.families import LoadedFamily


class Profile(str, enum.Enum):
    """How much of a family is built.

    smoke: one general variant per operator, dtype and head_dim class, enough for every call.
    standard: every supported key with its best config; what a release ships.
    full: every candidate config of every key, for tuning.
    """

    SMOKE = "smoke"
    STANDARD = "standard"
    FULL = "full"


@dataclass(frozen=True)
class Variant:
    """kernel + key + config + arch: one compile. `chosen` marks the config that dispatch uses;
    a full build holds others beside it, for tuning only."""

    family: str
    operator: str
    arch: Arch
    key: tuple[tuple[str, int | str], ...]
    promise: str
    config: tuple[tuple[str, int], ...]
    provenance: str
    chosen: bool = True

    @property
    def name(self) -> str:
        """Readable, ASCII, and unique within an arch: operator/key/promise/config."""
        key = ",".join(f"{axis}={value}" for axis, value in self.key)
        config = ",".join(f"{name}={value}" for name, value in self.config)
        return f"{self.family}.{self.operator}/{key}/{self.promise}/{config}"


def plan(family: LoadedFamily, arch: Arch, profile: Profile) -> tuple[Variant, ...]:
    """All variants of `family` for `arch`, in dispatch order. Raises SpecError."""
    variants: list[Variant] = []
    for operator in family.family.operators:
        table = load_table(family.folder, family.family, operator, arch)
        for key, promise in keys(operator, arch):
            if profile is Profile.SMOKE and not operator.smoke(arch, key, promise):
                continue
            row = table.lookup(key)

            def variant(
                config: tuple[tuple[str, int], ...], provenance: str, chosen: bool,
                name: str = operator.name, key: Key = key, promise: Promise = promise,
            ) -> Variant:  # fmt: skip
                return Variant(
                    family.family.name, name, arch, tuple(key.items()), promise.name,
                    config, provenance, chosen,
                )  # fmt: skip

            variants.append(variant(row.config, row.provenance, True))
            if profile is Profile.FULL:
                for candidate in operator.candidates(arch, key):
                    config = tuple((name, candidate[name]) for name in operator.config)
                    if config != row.config:
                        variants.append(variant(config, "candidate", False))
    if not variants:
        raise SpecError(f"family {family.family.name}: nothing to build for {arch.name}")
    return tuple(variants)


def keys(operator: Operator, arch: Arch) -> Iterator[tuple[Key, Promise]]:
    """The operator's valid keys and promises, in dispatch order: EQUAL axes sorted as the pack
    sorts them, then the other axes' values in order of preference, then the promises."""
    check_axes(operator)
    for values in itertools.product(*(axis.values for axis in operator.axes)):
        key = dict(zip((axis.name for axis in operator.axes), values, strict=True))
        for promise in operator.promises:
            if operator.valid(arch, key, promise):
                yield key, promise


def check_axes(operator: Operator) -> None:
    """EQUAL axes lead, and SLACK axes refer to another axis. Raises SpecError."""
    leading = True
    for axis in operator.axes:
        where = f"operator {operator.name!r}, axis {axis.name!r}"
        if axis.match is Match.EQUAL and not leading:
            raise SpecError(f"{where}: EQUAL axes must come before the others")
        leading = axis.match is Match.EQUAL
        if (axis.match is Match.SLACK) != bool(axis.of) or bool(axis.of) == bool(axis.source):
            raise SpecError(f"{where}: a SLACK axis has 'of' and no source, others the reverse")
        if axis.of:
            operator.axis(axis.of)
