"""The tuning tables of the built-in families: complete, sound and without dead rows."""

from __future__ import annotations

import pytest

from aotbuild.families import load_families
from aotbuild.plan import keys
from aotbuild.target import ARCHES, parse_arch
from aotbuild.tuning import load_table

OPERATORS = [
    pytest.param(family, operator, id=f"{family.name}.{operator.name}")
    for family in load_families((), ())
    for operator in family.family.operators
]
TUNED = sorted({arch.tuned_as for arch in ARCHES})


@pytest.mark.parametrize("arch", ARCHES, ids=lambda arch: arch.name)
@pytest.mark.parametrize(("family", "operator"), OPERATORS)
def test_every_key_has_a_config(family, operator, arch) -> None:
    table = load_table(family.folder, family.family, operator, arch)
    built = list(keys(operator, arch))
    assert built
    for key, _ in built:
        table.lookup(key)  # raises when no row matches


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize(("family", "operator"), OPERATORS)
def test_every_row_is_reached(family, operator, name: str) -> None:
    reached = set()
    borrowers = [arch for arch in ARCHES if arch.tuned_as == name]
    for arch in borrowers:
        table = load_table(family.folder, family.family, operator, arch)
        reached |= {table.rows.index(table.lookup(key)) for key, _ in keys(operator, arch)}
    unreached = [row for i, row in enumerate(table.rows) if i not in reached]
    assert not unreached


@pytest.mark.parametrize("arch", ARCHES, ids=lambda arch: arch.name)
@pytest.mark.parametrize(("family", "operator"), OPERATORS)
def test_config_values(family, operator, arch) -> None:
    for row in load_table(family.folder, family.family, operator, arch).rows:
        config = dict(row.config)
        waves = config.pop("waves_per_eu", 0)
        assert waves == 0 if arch.vendor == "cuda" else waves in range(5)
        assert 1 <= config.pop("num_stages", 1) <= 4
        assert config["num_warps"] <= 8
        for name, value in config.items():
            assert value > 0, name
            assert value & (value - 1) == 0, f"{name}={value} is not a power of two"
            if name.startswith("BLOCK"):
                assert value >= 16, f"{name}={value}: matrix units take 16 or more"


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize(("family", "operator"), OPERATORS)
def test_provenance_is_known(family, operator, name: str) -> None:
    arch = parse_arch(name).arch
    for row in load_table(family.folder, family.family, operator, arch).rows:
        kind, _, source = row.provenance.partition(":")
        assert kind in {"estimate", "published", "measured"}
        assert bool(source) == (kind != "estimate")


def test_every_table_serves_an_arch() -> None:
    for family in load_families((), ()):
        files = {path.stem for path in (family.folder / "tuned").iterdir()}
        assert files == set(TUNED)
