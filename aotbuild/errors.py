"""One family of errors. Each says what, where, what was expected, and the remedy."""

from __future__ import annotations

import enum


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


class IndexFileError(AotbuildError):
    """A release index is damaged, contradicts itself, or is of another format."""


class TrustError(AotbuildError):
    """What was received is not what the publisher signed or pinned: a wrong signature, an index
    that has expired or is older than one seen before, a wrong hash."""


class FetchError(AotbuildError):
    """What is wanted could not be brought: no mirror has it, the network or the disk failed."""


class ReleaseError(AotbuildError):
    """A release cannot be made of what was given."""


class Status(enum.IntEnum):
    """What a call of the runtime came to (aotbuild.h; the numbers are pinned)."""

    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    NO_PACK = 3
    NO_IMAGE = 4
    PACK_CORRUPT = 5
    PACK_VERSION = 6
    PACK_ARCH = 7
    CONTRACT = 8
    NO_DRIVER = 9
    DRIVER = 10
    IO = 11
    OUT_OF_MEMORY = 12
    WORKSPACE = 13
    INTERNAL = 14


class LaunchError(AotbuildError):
    """The runtime refused or failed a call. Nothing was launched, no output was written."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[LaunchError], tuple[Status, str]]:
        return type(self), (self.status, str(self))


class NotServedError(LaunchError):
    """The call is sound, but there is no driver, no pack, or no image for it here: the case in
    which a program may fall back on another implementation."""


_NOT_SERVED = (Status.UNSUPPORTED, Status.NO_PACK, Status.NO_IMAGE, Status.NO_DRIVER)


def launch_error(status: int, message: str) -> LaunchError:
    """The exception for a status of the runtime. Called by the native module."""
    known = Status(status)
    return (NotServedError if known in _NOT_SERVED else LaunchError)(known, message)
