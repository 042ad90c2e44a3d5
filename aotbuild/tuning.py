"""Tuning tables: `tuned/<arch>.csv` beside a kernel, one row per group of keys.

Columns: `operator`, the axes (`*` for any value) and config entries of the family's operators,
`provenance`; a cell that is not for the row's operator is empty. The first row that matches a key
gives its config. A key without a row is an error, never a default.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from aotbuild.errors import SpecError
from aotbuild.spec import Axis, Family, Key, Operator
from aotbuild.target import Arch


@dataclass(frozen=True)
class TunedRow:
    """Config of the keys that match `pattern` (axis name, value or None for any)."""

    pattern: tuple[tuple[str, int | str | None], ...]
    config: tuple[tuple[str, int], ...]
    provenance: str

    def matches(self, key: Key) -> bool:
        return all(value is None or key[axis] == value for axis, value in self.pattern)


@dataclass(frozen=True)
class TunedTable:
    path: Path
    rows: tuple[TunedRow, ...]

    def lookup(self, key: Key) -> TunedRow:
        for row in self.rows:
            if row.matches(key):
                return row
        text = ", ".join(f"{axis}={value}" for axis, value in key.items())
        raise SpecError(f"{self.path}: no row matches {text}; add one (or a row with '*')")


def load_table(folder: Path, family: Family, operator: Operator, arch: Arch) -> TunedTable:
    """The operator's rows of `<folder>/tuned/<arch.tuned_as>.csv`. Raises SpecError."""
    path = folder / "tuned" / f"{arch.tuned_as}.csv"
    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise SpecError(f"no tuning table for {arch.name}: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: expected ASCII: {error}") from error
    reader = csv.DictReader(text.splitlines(), strict=True)
    _check_columns(set(reader.fieldnames or ()), family, path)
    rows = []
    for record in reader:
        where = f"{path}:{reader.line_num}"
        if None in record or None in record.values():
            raise SpecError(f"{where}: expected {len(reader.fieldnames or ())} cells")
        if record["operator"] not in (op.name for op in family.operators):
            raise SpecError(f"{where}: unknown operator {record['operator']!r}")
        if record["operator"] == operator.name:
            rows.append(_row(operator, record, where))
    return TunedTable(path, tuple(rows))


def _columns(operator: Operator) -> set[str]:
    return {"operator", *(axis.name for axis in operator.axes), *operator.config, "provenance"}


def _check_columns(seen: set[str], family: Family, path: Path) -> None:
    expected = set().union(*(_columns(operator) for operator in family.operators))
    if seen != expected:
        unknown, missing = sorted(seen - expected), sorted(expected - seen)
        raise SpecError(f"{path}: unknown columns {unknown}, missing columns {missing}")


def _row(operator: Operator, record: dict[str, str], where: str) -> TunedRow:
    for name in sorted(set(record) - _columns(operator)):
        if record[name]:
            raise SpecError(f"{where}: {name} is not for operator {operator.name}; leave it empty")
    pattern = tuple((axis.name, _cell(axis, record[axis.name], where)) for axis in operator.axes)
    try:
        config = tuple((name, int(record[name])) for name in operator.config)
    except ValueError as error:
        raise SpecError(f"{where}: a config value is not an integer: {error}") from error
    if not record["provenance"]:
        raise SpecError(f"{where}: provenance is empty; say where the row comes from")
    return TunedRow(pattern, config, record["provenance"])


def _cell(axis: Axis, text: str, where: str) -> int | str | None:
    if text == "*":
        return None
    for value in axis.values:
        if str(value) == text:
            return value
    raise SpecError(f"{where}: {axis.name} is {text!r}, expected '*' or one of {axis.values}")
