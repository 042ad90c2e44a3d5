"""Files that are for CMake and Python alike, and where they lie: `AotbuildProvision.cmake`, and
`index.json`, the release index that this version pins."""

from __future__ import annotations

from pathlib import Path

from aotbuild.errors import AotbuildError


def shipped(name: str) -> Path:
    """A file that comes with aotbuild: in the package, or else in a checkout. Raises AotbuildError
    when the installation is not whole.
    """
    package = Path(__file__).resolve().parent
    source = package.parent
    places = (package / "lib/cmake/aotbuild", source / "cmake", source / "images")
    for place in places:
        if (place / name).is_file():
            return place / name
    searched = ", ".join(map(str, places))
    raise AotbuildError(f"{name} is in none of {searched}; install aotbuild again")
