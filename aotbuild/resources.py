"""Registers, spills and argument sizes of a kernel, read from its code object.

NVIDIA: attributes of `.nv.info*` sections (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE and
EIATTR_KPARAM_INFO; the frame is the stack a thread has, which in a Triton kernel is its spills).
AMD: the kernel's MessagePack metadata note.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from aotbuild import elf
from aotbuild.target import Arch

_SVAL = 4  # attribute format with a u16 size and a payload of that many bytes
_FRAME_SIZE = 0x11
_KPARAM_INFO = 0x17
_REGCOUNT = 0x2F
_KPARAM_SIZE_SHIFT = 18  # the last word's upper bits are the parameter's size

_UINT = rb"([\x00-\x7f]|\xcc.|\xcd..|\xce....)"  # MessagePack unsigned integers up to 32 bits
_ARGUMENT = re.compile(rb"\.size" + _UINT + rb"\xab\.value_kind[\xa0-\xbf](hidden_)?", re.DOTALL)


@dataclass(frozen=True)
class Resources:
    """Registers per thread (VGPRs on AMD), spilled bytes per thread, and the size in bytes of
    each argument that the kernel takes, in order."""

    registers: int
    spills: int
    arguments: tuple[int, ...]


def of(code: bytes, arch: Arch) -> Resources:
    """Reads the resources of a code object that holds one kernel; what is not there is 0."""
    return _nvidia(code) if arch.vendor == "cuda" else _amd(code)


def _nvidia(code: bytes) -> Resources:
    found = {_REGCOUNT: 0, _FRAME_SIZE: 0}
    widths: dict[int, int] = {}
    for section in elf.sections(code):
        if not section.name.startswith(".nv.info"):
            continue
        for attribute, payload in _attributes(section.data):
            if attribute in found:
                (value,) = struct.unpack_from("<I", payload, 4)
                found[attribute] = max(found[attribute], value)
            elif attribute == _KPARAM_INFO:
                _, ordinal, _, word = struct.unpack("<IHHI", payload)
                widths[ordinal] = word >> _KPARAM_SIZE_SHIFT
    arguments = tuple(width for _, width in sorted(widths.items()))
    return Resources(found[_REGCOUNT], found[_FRAME_SIZE], arguments)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes with a payload of a .nv.info section."""
    at = 0
    while at + 4 <= len(data):
        layout, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if layout == _SVAL:
            yield attribute, data[at : at + size]
            at += size


def _amd(code: bytes) -> Resources:
    arguments = (_uint(size) for size, hidden in _ARGUMENT.findall(code) if not hidden)
    registers, spills = _note(code, b".vgpr_count"), _note(code, b".vgpr_spill_count")
    return Resources(registers, 4 * spills, tuple(arguments))


def _note(code: bytes, name: bytes) -> int:
    """An unsigned integer of the metadata note."""
    match = re.search(re.escape(name) + _UINT, code, re.DOTALL)
    return 0 if match is None else _uint(match.group(1))


def _uint(text: bytes) -> int:
    """A MessagePack unsigned integer."""
    return text[0] if len(text) == 1 else int.from_bytes(text[1:], "big")
