"""The command `aotbuild fetch` as tests run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Where packs go unless a test says otherwise.
TO = Path("packs")


@dataclass(frozen=True)
class Told:
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str


Fetch = Callable[..., Told]
