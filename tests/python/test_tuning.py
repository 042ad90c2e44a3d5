"""Tuning tables: every way a row can be wrong, then lookup."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotbuild.errors import SpecError
from aotbuild.families import load_family
from aotbuild.target import parse_arch
from aotbuild.tuning import TunedTable, load_table

CONTRACT = Path(__file__).parent.parent / "families" / "contract"
HEADER = "operator,dtype,mode,length,BLOCK,ROWS,COLUMNS,num_warps,per_multiprocessor,provenance"
SM_90 = parse_arch("sm_90").arch
SM_100 = parse_arch("sm_100").arch


def load(folder: Path, text: str) -> TunedTable:
    (folder / "tuned").mkdir()
    (folder / "tuned" / "sm_90.csv").write_text(text, encoding="utf-8")
    family = load_family(CONTRACT).family
    return load_table(folder, family, family.operators[1], SM_90)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing columns"),
        (HEADER + ",oops\n", "unknown columns \\['oops'\\]"),
        (HEADER.replace("ROWS,", "") + "\n", "missing columns \\['ROWS'\\]"),
        (HEADER + "\ncopy_tiles,*,,,,64,64,4\n", "expected 10 cells"),
        (HEADER + "\ncopy_tiles,*,,,,64,64,4,,measured,more\n", "expected 10 cells"),
        (HEADER + "\nnone,*,,,,64,64,4,,x\n", "unknown operator 'none'"),
        (HEADER + "\ncopy_tiles,fp8,,,,64,64,4,,x\n", "dtype is 'fp8'"),
        (HEADER + "\ncopy_tiles,*,,,,wide,64,4,,x\n", "not an integer"),
        (HEADER + "\ncopy_tiles,*,,,,64,64,4,,\n", "provenance is empty"),
        (HEADER + "\ncopy_tiles,*,,,7,64,64,4,,x\n", "BLOCK is not for operator copy_tiles"),
        (HEADER + "\ncopy_tiles,\u00e9,,,,64,64,4,,x\n", "expected ASCII"),
    ],
)
def test_wrong_table_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        load(tmp_path, text)
    assert "sm_90.csv" in str(caught.value)


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    family = load_family(CONTRACT).family
    with pytest.raises(SpecError, match="no tuning table for sm_90"):
        load_table(tmp_path, family, family.operators[1], SM_90)


def test_first_matching_row_wins_and_a_key_without_row_is_an_error(tmp_path: Path) -> None:
    rows = "copy_tiles,fp16,,,,16,64,4,,first\ncopy_tiles,fp16,,,,32,64,4,,second\n"
    table = load(tmp_path, f"{HEADER}\n{rows}")
    row = table.lookup({"dtype": "fp16"})
    assert (row.provenance, dict(row.config)["ROWS"]) == ("first", 16)
    with pytest.raises(SpecError, match="no row matches dtype=fp32"):
        table.lookup({"dtype": "fp32"})


def test_an_arch_may_borrow_the_table_of_another() -> None:
    family = load_family(CONTRACT).family
    table = load_table(CONTRACT, family, family.operators[1], SM_100)
    assert table.path.name == "sm_90.csv"
