"""One family of errors. Each says what, where, what was expected, and the remedy."""

from __future__ import annotations


class AotbuildError(Exception):
    """Base of all errors that aotbuild raises on purpose. `exit_code` is for the command line."""

    exit_code = 1


class UsageError(AotbuildError):
    """The request itself is wrong: an unknown arch, option, family, or setting."""

    exit_code = 2


class SpecError(AotbuildError):
    """A kernel description contradicts itself, its kernel, or its tuning table."""


class CompileError(AotbuildError):
    """A variant did not compile. Names the variant and carries the compiler's message."""


class PackError(AotbuildError):
    """A pack cannot be read or written. `path` is where, `reason` one of the kinds below."""


class PackCorruptError(PackError):
    """Truncated, damaged, or inconsistent."""


class PackVersionError(PackError):
    """A format version this aotbuild does not read."""


class PackArchError(PackError):
    """The pack, or a code object in it, is for another arch than asked for."""
