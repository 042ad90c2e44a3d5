"""Files that come with aotbuild."""

from __future__ import annotations

import pytest

from aotbuild.errors import AotbuildError
from aotbuild.shipped import shipped


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(AotbuildError, match=r"none\.cmake is in none of .*; install"):
        shipped("none.cmake")


@pytest.mark.parametrize("name", ["index.json", "AotbuildProvision.cmake"])
def test_what_comes_with_aotbuild_is_found(name: str) -> None:
    assert shipped(name).stat().st_size > 100
