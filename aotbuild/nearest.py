"""The nearest known word to a misspelt one, for error messages."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None when nothing is close."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence to add to an error: " Did you mean 'x'?", or nothing."""
    found = nearest(word, known)
    return f" Did you mean {found!r}?" if found else ""
