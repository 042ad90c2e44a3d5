"""What the tests of CMake share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cmake_projects import OLDEST_CMAKE, run


@pytest.fixture(scope="session")
def oldest_cmake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oldest CMake that is supported, as a package of its own."""
    folder = tmp_path_factory.mktemp("cmake")
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", folder]
    run(*command, f"cmake=={OLDEST_CMAKE}")
    return folder / "cmake" / "data" / "bin" / "cmake"
