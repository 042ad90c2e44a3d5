"""Kernel families: where their folders are, and reading their descriptions.

A family is a folder with `spec.py`, `kernel.py` and `tuned/<arch>.csv`. Reading one runs its
`spec.py`, which imports neither triton nor torch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotbuild.errors import SpecError, UsageError
from aotbuild.nearest import did_you_mean
from aotbuild.spec import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class LoadedFamily:
    """A family and the folder it came from. `source_hash` is the SHA-256 of all that decides its
    images: names, relative to the folder, and contents of its Python and tuning files.
    """

    family: Family
    folder: Path
    source_hash: str

    @property
    def name(self) -> str:
        """The family's name, which is its folder's."""
        return self.family.name


def builtin_families() -> Path:
    """The folder of the families that ship with aotbuild: inside the wheel, or in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def load_families(names: Sequence[str], extra_dirs: Sequence[Path]) -> tuple[LoadedFamily, ...]:
    """Loads the families called `names`, or every family when `names` is empty.

    Each of `extra_dirs` holds family folders, as `kernels/` does. A family in them takes the
    place of a built-in one of the same name. Raises UsageError for an unknown family or a folder
    that holds none, SpecError for a broken description. Repeated names count once.
    """
    folders = _find(extra_dirs)
    for name in names:
        if name not in folders:
            raise UsageError(
                f"unknown family {name!r}.{did_you_mean(name, folders)} "
                f"Known: {', '.join(folders) or 'none'}"
            )
    chosen = dict.fromkeys(names) if names else folders
    return tuple(load_family(folders[name]) for name in chosen)


def load_family(folder: Path) -> LoadedFamily:
    """Reads one family's description. Raises SpecError, which names the file and the cause."""
    path = folder / "spec.py"
    family = getattr(_run(path), "FAMILY", None)
    if not isinstance(family, Family):
        raise SpecError(
            f"{path}: FAMILY must be an aotbuild.spec.Family, but is "
            f"{'missing' if family is None else repr(family)}"
        )
    if family.name != folder.name:
        raise SpecError(
            f"{path}: the family is called {family.name!r}, its folder {folder.name!r}; "
            "give both one name"
        )
    if not (folder / "kernel.py").is_file():
        raise SpecError(f"{folder}: there is no kernel.py beside spec.py")
    return LoadedFamily(family, folder, hash_sources(folder))


def hash_sources(folder: Path) -> str:
    """SHA-256 of the names and contents of a family's `*.py` and `tuned/*.csv` files."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *folder.glob("tuned/*.csv")]):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _find(extra_dirs: Iterable[Path]) -> dict[str, Path]:
    """Family folders by name, sorted."""
    extra: dict[str, Path] = {}
    for directory in dict.fromkeys(path.resolve() for path in extra_dirs):
        folders = _family_folders(directory)
        if not folders:
            raise UsageError(
                f"kernels folder {directory} holds no family: expected folders with a spec.py"
                + (
                    f". It is a family itself: give {directory.parent}"
                    if _is_family(directory)
                    else ""
                )
            )
        for folder in folders:
            if folder.name in extra:
                raise UsageError(
                    f"family {folder.name!r} is in two kernels folders: "
                    f"{extra[folder.name].parent} and {directory}; give only one"
                )
            extra[folder.name] = folder
    builtin = {folder.name: folder for folder in _family_folders(builtin_families())}
    return dict(sorted({**builtin, **extra}.items()))


def _is_family(folder: Path) -> bool:
    return (folder / "spec.py").is_file()


def _family_folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    folders = [path for path in sorted(directory.iterdir()) if _is_family(path)]
    for folder in folders:
        if not _NAME.fullmatch(folder.name):
            raise SpecError(
                f"{folder}: a family's folder is named by lower-case ASCII letters, digits "
                f"and '_', starting with a letter"
            )
    return folders


def _run(path: Path) -> ModuleType:
    name = f"_aotbuild_spec_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SpecError(f"{path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(name, None)
    return module


def _line(error: BaseException, path: Path) -> str:
    """`:12`, the last line of `path` that the error passed through, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    return f":{lines[-1]}" if lines and lines[-1] else ""
