"""How the values of settings are written, in text and in TOML, and what is right for each."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aotbuild.nearest import did_you_mean
from aotbuild.plan import Profile


class WrongValueError(ValueError):
    """A value that is not what its setting expects."""


class Kind(NamedTuple):
    """How a setting's values are written. `text` turns words from the command line or the
    environment into what TOML would give; `check` turns that into the setting's own type, with
    relative paths based on the folder given.
    """

    expected: str
    text: Callable[[str], Any]
    check: Callable[[Any, Path], Any]


def _whole(text: str) -> int | str:
    """An integer if `text` is one; else as it was, for `check` to refuse."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else text


def _check_jobs(value: Any, _: Path) -> int:
    if type(value) is not int or not 1 <= value <= 4096:
        raise WrongValueError
    return value


def _seconds_text(text: str) -> float | str:
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else text


def _check_seconds(value: Any, _: Path) -> float:
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise WrongValueError
    return float(value)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _check_bytes(value: Any, _: Path) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,18})\s*(?:([KMGT])iB|B)?", value)
        if match is None:
            raise WrongValueError
        return int(match[1]) * _UNITS[match[2] or ""]
    if type(value) is not int or value < 0:
        raise WrongValueError
    return value


_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _check_switch(value: Any, _: Path) -> bool:
    if not isinstance(value, bool):
        raise WrongValueError
    return value


def _check_path(value: Any, base: Path) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise WrongValueError
    return base / Path(value).expanduser()


def _words(text: str) -> list[str]:
    return re.split(r"[\s,;]+", text)


def _check_strings(value: Any, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise WrongValueError
    return tuple(dict.fromkeys(value))


def _check_paths(value: Any, base: Path) -> tuple[Path, ...]:
    return tuple(_check_path(item, base) for item in _check_strings(value, base))


def _check_location(value: Any, base: Path) -> str:
    """A URL as it is; a path, or a URL of a file, as an absolute path."""
    if isinstance(value, str) and re.match(r"https?://[^/\s]", value):
        return value
    if isinstance(value, str) and value.startswith("file:///"):
        value = urllib.parse.unquote(urllib.parse.urlsplit(value).path)
    if isinstance(value, str) and "://" in value:
        raise WrongValueError
    return str(_check_path(value, base).absolute())


def _check_locations(value: Any, base: Path) -> tuple[str, ...]:
    return tuple(_check_location(item, base) for item in _check_strings(value, base))


def _check_keys(value: Any, base: Path) -> tuple[str, ...]:
    keys = _check_strings(value, base)
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in keys):
        raise WrongValueError
    return keys


def _check_profile(value: Any, _: Path) -> Profile:
    try:
        return Profile(value)
    except ValueError:
        known = [profile.value for profile in Profile]
        raise WrongValueError(did_you_mean(str(value), known)) from None


JOBS = Kind("a whole number from 1 to 4096", _whole, _check_jobs)
SECONDS = Kind("a number of seconds above 0", _seconds_text, _check_seconds)
BYTES = Kind("a number of bytes, or a size such as '512MiB' or '4GiB'", str, _check_bytes)
BOOL = Kind("true or false", lambda text: _SWITCH.get(text.lower(), text), _check_switch)
PATH = Kind("a path", str, _check_path)
PATHS = Kind("a list of paths", lambda text: text.split(os.pathsep), _check_paths)
NAMES = Kind("a list of names", _words, _check_strings)
LOCATION = Kind("a URL of http or https, or a path", str, _check_location)
LOCATIONS = Kind(
    "a list of URLs of http or https and paths", lambda text: text.split(), _check_locations
)
KEYS = Kind(
    "a list of Ed25519 public keys, 64 digits of lower-case hexadecimal each",
    _words,
    _check_keys,
)
PROFILE = Kind(f"one of {', '.join(profile.value for profile in Profile)}", str, _check_profile)
