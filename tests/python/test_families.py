"""Finding and reading kernel families."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotbuild.errors import SpecError, UsageError
from aotbuild.families import builtin_families, hash_sources, load_families, load_family


def test_an_unknown_family_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown family 'atention'. Did you mean 'attention'\?"):
        load_families(["atention"], [])


@pytest.mark.parametrize("exists", [True, False])
def test_a_kernels_folder_must_hold_a_family(exists: bool, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    if exists:
        folder.mkdir()
    with pytest.raises(UsageError, match=f"kernels folder {folder} holds no family"):
        load_families([], [folder])


def test_a_family_given_as_kernels_folder(write_family: Callable[..., Path]) -> None:
    kernels = write_family()
    with pytest.raises(UsageError, match=f"It is a family itself: give {kernels}"):
        load_families([], [kernels / "tiny"])


def test_one_name_in_two_folders(write_family: Callable[..., Path]) -> None:
    folders = [write_family(), write_family(folder="more")]
    with pytest.raises(UsageError, match="family 'tiny' is in two kernels folders"):
        load_families(["tiny"], folders)


@pytest.mark.parametrize("name", ["Tiny", "ti-ny", "ti ny", "t\u00efny", "1tiny"])
def test_a_folder_name_that_cannot_be_a_family(
    name: str, write_family: Callable[..., Path]
) -> None:
    kernels = write_family(name)
    with pytest.raises(SpecError, match="lower-case ASCII letters"):
        load_families([], [kernels])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("x = 1\ny = x +\n", "spec.py:2: SyntaxError"),
        ("import no_such_module\n", "spec.py:1: ModuleNotFoundError: No module named"),
        ("\n\nraise ValueError('broken')\n", "spec.py:3: ValueError: broken"),
        ("import sys\nsys.exit(3)\n", "spec.py:2: SystemExit: 3"),
        ("", "FAMILY must be an aotbuild.spec.Family, but is missing"),
        ("FAMILY = 3\n", "but is 3"),
        (
            "from aotbuild.spec import Family\nFAMILY = Family('other', ())\n",
            "the family is called 'other', its folder 'tiny'",
        ),
    ],
)
def test_a_broken_description_is_told_with_file_and_cause(
    spec: str, message: str, write_family: Callable[..., Path]
) -> None:
    folder = write_family() / "tiny"
    (folder / "spec.py").write_text(spec, "utf-8")
    before = set(sys.modules)
    with pytest.raises(SpecError) as caught:
        load_family(folder)
    assert message in str(caught.value)
    assert str(folder / "spec.py") in str(caught.value)
    assert not {name for name in set(sys.modules) - before if "aotbuild_spec" in name}


def test_a_description_without_kernel(write_family: Callable[..., Path]) -> None:
    folder = write_family() / "tiny"
    (folder / "kernel.py").unlink()
    with pytest.raises(SpecError, match=r"there is no kernel\.py beside spec\.py"):
        load_family(folder)


def test_builtin_families_are_found_and_need_neither_triton_nor_torch() -> None:
    assert (builtin_families() / "attention" / "spec.py").is_file()
    assert [family.name for family in load_families(["attention", "attention"], [])] == [
        "attention"
    ]


def test_no_names_are_all_families_sorted(write_family: Callable[..., Path]) -> None:
    kernels = write_family()
    write_family("aaa")
    names = [family.name for family in load_families([], [kernels, kernels])]
    assert names == sorted(names)
    assert {"aaa", "attention", "tiny"} <= set(names)


def test_a_given_folder_goes_before_the_builtin_ones(write_family: Callable[..., Path]) -> None:
    kernels = write_family("attention")
    (family,) = load_families(["attention"], [kernels])
    assert family.folder == kernels / "attention"
    assert [operator.name for operator in family.family.operators] == ["double"]


def test_the_source_hash_follows_contents_and_names_only(
    write_family: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_family() / "tiny"
    first = hash_sources(folder)
    shutil.copytree(folder, tmp_path / "elsewhere" / "tiny")
    assert hash_sources(tmp_path / "elsewhere" / "tiny") == first
    assert load_family(folder).source_hash == first
    (folder / "notes.txt").write_text("ignored", "utf-8")
    assert hash_sources(folder) == first
    changes: list[str] = [first]
    with (folder / "kernel.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    changes.append(hash_sources(folder))
    (folder / "helper.py").touch()
    changes.append(hash_sources(folder))
    table = folder / "tuned" / "sm_90.csv"
    table.rename(table.with_name("sm_80.csv"))
    changes.append(hash_sources(folder))
    assert len(set(changes)) == len(changes)
