"""The settings: one typed model, read from the command line, the environment and a TOML file.

`python -m aotbuild.config > docs/settings.md` writes the page that describes them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotbuild.errors import UsageError
from aotbuild.nearest import did_you_mean
from aotbuild.plan import Profile
from aotbuild.setting_kinds import (
    BOOL,
    BYTES,
    JOBS,
    KEYS,
    LOCATION,
    LOCATIONS,
    NAMES,
    PATH,
    PATHS,
    PROFILE,
    SECONDS,
    Kind,
    WrongValueError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Read from the working folder when neither --config nor AOTBUILD_CONFIG names a file.
CONFIG_FILE = "aotbuild.toml"
_PREFIX = "AOTBUILD_"

GIB = 1 << 30
#: What a worker needs at its peak: triton with LLVM, and ptxas beside it.
WORKER_BYTES = 3 * GIB // 2


def usable_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still use: the machine's, or less in a limited control group.
    `root` is where /proc and /sys lie.
    """
    found = []
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text("ascii"))
        found += [int(match[1]) * 1024] if match else []
        found.append(int((root / "sys/fs/cgroup/memory.max").read_text("ascii")))
    except (OSError, ValueError):  # no such system, no control group, or the limit is "max"
        pass
    return min(found, default=sys.maxsize)


def default_jobs() -> int:
    """One worker a CPU that this process may use, as far as memory allows."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cpus, usable_memory() // WORKER_BYTES))


def default_cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/aotbuild`."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") / "aotbuild"


def default_fetch_to(environ: Mapping[str, str] | None = None) -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/aotbuild/images`, which the runtime searches."""
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "aotbuild/images"


def _xdg(environ: Mapping[str, str] | None, variable: str, default: str) -> Path:
    """A base folder of the XDG specification, in which a relative value does not count."""
    base = Path((os.environ if environ is None else environ).get(variable, ""))
    return base if base.is_absolute() else Path.home() / default


def _about(
    kind: Kind, text: str, shown: str = "", *, commands: str = "compile", option: str = ""
) -> dict[str, Any]:
    """A field's metadata. `shown` describes a default that depends on the machine, `commands` are
    those that heed it, and `option` is its name on the command line if that is another.
    """
    return {"kind": kind, "help": text, "shown": shown, "commands": commands, "option": option}


@dataclass(frozen=True)
class Settings:
    """All that can be set. `aotbuild.config.load` is the usual way to make one."""

    output: Path = field(
        default=Path("images"),
        metadata=_about(PATH, "Folder of the packs: `<output>/<arch>/<family>.aotpack`."),
    )
    profile: Profile = field(
        default=Profile.STANDARD,
        metadata=_about(
            PROFILE,
            "How much is built: `smoke` (a few general images), `standard` (what a release "
            "ships) or `full` (every candidate, for tuning).",
            "`standard`",
        ),
    )
    family: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            NAMES, "Families to compile or fetch.", "every family", commands="compile, fetch"
        ),
    )
    kernels: tuple[Path, ...] = field(
        default=(),
        metadata=_about(
            PATHS,
            "Further folders that hold families, as `kernels/` does. A family in them takes "
            "the place of a built-in one of the same name.",
            "none",
            commands="compile, fetch",
        ),
    )
    jobs: int = field(
        default_factory=default_jobs,
        metadata=_about(
            JOBS, "Worker processes.", "one a CPU, as far as 1.5 GiB of free memory a worker allow"
        ),
    )
    timeout: float = field(
        default=600.0,
        metadata=_about(SECONDS, "Seconds that one variant may take to compile.", "`600`"),
    )
    cache: bool = field(
        default=True, metadata=_about(BOOL, "Keep compiled images and use them again.", "`true`")
    )
    cache_dir: Path = field(
        default_factory=default_cache_dir,
        metadata=_about(
            PATH,
            "Folder of the cache.",
            "`${XDG_CACHE_HOME:-~/.cache}/aotbuild`",
            commands="compile, fetch",
        ),
    )
    cache_limit: int = field(
        default=4 * GIB,
        metadata=_about(
            BYTES,
            "Size that the cache of images is cut down to after a build, and that of downloads "
            "after a fetch, least used first.",
            "`4GiB`",
            commands="compile, fetch",
        ),
    )
    index: str = field(
        default="",
        metadata=_about(
            LOCATION,
            "Index that says what is published: its file, or the folder that holds `index.json`, "
            "and where the files are looked for first. A local one is trusted as it is; one from "
            "the network must be signed.",
            "the one that this aotbuild pins",
            commands="fetch",
        ),
    )
    mirror: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            LOCATIONS, "Folders to fetch from before the index's.", "none", commands="fetch"
        ),
    )
    fetch_to: Path = field(
        default_factory=default_fetch_to,
        metadata=_about(
            PATH,
            "Folder that packs are fetched into.",
            "`${XDG_DATA_HOME:-~/.local/share}/aotbuild/images`",
            commands="fetch",
            option="to",
        ),
    )
    strict_arch: bool = field(
        default=False,
        metadata=_about(
            BOOL,
            "Fail if one of the arches has no pack, in place of fetching the others.",
            "`false`",
            commands="fetch",
        ),
    )
    offline: bool = field(
        default=False,
        metadata=_about(
            BOOL,
            "Use what was downloaded before and local folders, not the network.",
            "`false`",
            commands="fetch",
        ),
    )
    key: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            KEYS,
            "Keys that may sign an index from the network.",
            "those that the pinned index names",
            commands="fetch",
        ),
    )
    allow_unsigned: bool = field(
        default=False,
        metadata=_about(
            BOOL,
            "Take an index from the network without looking for a signature.",
            "`false`",
            commands="fetch",
        ),
    )


_FIELDS: Mapping[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Settings)}


def load(
    options: Mapping[str, str | list[str] | None],
    *,
    environ: Mapping[str, str],
    folder: Path,
) -> Settings:
    """Settings from, in order, the command line, the environment, the TOML file, and defaults.

    `options` are the command line's, as written, by name; None and [] are not given. `config`
    among them, or AOTBUILD_CONFIG, names the TOML file. Relative paths belong to `folder`, those
    in the TOML file to the file's own folder. Raises UsageError, which says where the value is.
    """
    values: dict[str, Any] = {
        "output": folder / "images",
        "cache_dir": default_cache_dir(environ),
        "fetch_to": default_fetch_to(environ),
    }
    named = options.get("config") or environ.get(f"{_PREFIX}CONFIG")
    file = folder / str(named or CONFIG_FILE)
    if named or file.is_file():
        values |= _read_file(file)
    for name, setting in _FIELDS.items():
        text = environ.get(_PREFIX + name.upper())
        if text:
            kind: Kind = setting.metadata["kind"]
            values[name] = _checked(name, kind.text(text), folder, _PREFIX + name.upper())
        given = options.get(name)
        if given is not None and given != []:
            values[name] = _from_option(name, given, folder)
    return Settings(**values)


def _option(name: str) -> str:
    return f"--{_FIELDS[name].metadata['option'] or name.replace('_', '-')}"


def _from_option(name: str, given: str | list[str], folder: Path) -> Any:
    kind: Kind = _FIELDS[name].metadata["kind"]
    where = _option(name)
    if isinstance(given, str):
        return _checked(name, kind.text(given), folder, where)
    # A repeated option; each may hold a list of names, but a path may hold any separator.
    parts = [
        part for text in given for part in (kind.text(text) if kind in (NAMES, KEYS) else [text])
    ]
    return _checked(name, parts, folder, where)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise UsageError(f"cannot read settings file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    for name in table:
        if name not in _FIELDS:
            raise UsageError(
                f"{file}: unknown setting {name!r}.{did_you_mean(name, _FIELDS)} "
                f"Known: {', '.join(_FIELDS)}"
            )
    base = file.absolute().parent
    return {name: _checked(name, value, base, f"{file}: {name}") for name, value in table.items()}


def _checked(name: str, value: Any, base: Path, where: str) -> Any:
    kind: Kind = _FIELDS[name].metadata["kind"]
    try:
        return kind.check(value, base)
    except (WrongValueError, RuntimeError) as error:  # RuntimeError: no home folder for `~`
        raise UsageError(f"{where} is {value!r}, expected {kind.expected}.{error}") from error


def settings_page() -> str:
    """docs/settings.md, from the dataclass."""
    rows = [
        f"| `{name}` | {setting.metadata['commands']} | `{_option(name)}` "
        f"| `{_PREFIX}{name.upper()}` "
        f"| {setting.metadata['shown'] or f'`{setting.default}`'} | {setting.metadata['help']} "
        f"Expects {setting.metadata['kind'].expected}. |"
        for name, setting in _FIELDS.items()
    ]
    return "\n".join([_PAGE_HEAD, *rows, ""])


_PAGE_HEAD = f"""\
<!-- Written by `python -m aotbuild.config > docs/settings.md`; do not edit. -->

# Settings

A setting is taken from the first of these that has it: the command line, the environment, the
TOML file, its default. The file is `{CONFIG_FILE}` in the working folder, or the one that
`--config` or `{_PREFIX}CONFIG` names; its keys are the names below, at the top level. Relative
paths belong to the working folder, those in the file to the file's folder. In the environment,
an empty value counts as unset, names are separated by commas or blanks, paths by `:`, and lists
that may hold URLs by blanks. An unknown key or a malformed value is an error.

| setting | commands | option | environment | default | meaning |
|---|---|---|---|---|---|"""


if __name__ == "__main__":
    sys.stdout.write(settings_page())
