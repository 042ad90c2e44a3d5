"""The words that name an arch: CMake's verdicts against the table that target.py is tested with."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cmake_projects import newest_cmake, run

from aotbuild.target import ARCHES

HERE = Path(__file__).parent
TABLE = HERE.parent / "data" / "arch_words.csv"


@pytest.mark.parametrize("version", ["oldest", "newest"])
def test_words_have_the_verdicts_of_the_table(version: str, request: pytest.FixtureRequest) -> None:
    cmake = request.getfixturevalue("oldest_cmake") if version == "oldest" else newest_cmake()
    arches = ";".join(arch.name for arch in ARCHES)
    script = HERE / "arch_words.cmake"
    output = run(cmake, f"-DFILE={TABLE}", f"-DARCHES={arches}", "-P", script).stderr
    verdicts = [tuple(line.split("|")) for line in output.splitlines()]
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [word for word, _, _ in verdicts] == [row["word"] for row in rows]
    for row, (word, arch, why) in zip(rows, verdicts, strict=True):
        assert arch == row["arch"], word
        assert row["reason"] in why, word
        assert bool(why) == (not arch), word
