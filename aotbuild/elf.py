"""The few ELF facts that tell which GPU a code object is for."""

from __future__ import annotations

import struct
from typing import NamedTuple

from aotbuild.errors import PackArchError
from aotbuild.target import Arch

_EM_CUDA = 190
_EM_AMDGPU = 224
_ABI_8 = 8  # cubin ABI version that moved the SM number to bits 8-15 of e_flags


class Section(NamedTuple):
    name: str
    data: bytes


def check_arch(code: bytes, arch: Arch) -> None:
    """Raises PackArchError unless `code` is an ELF code object for `arch`."""
    if len(code) < 64 or code[:6] != b"\x7fELF\x02\x01":
        raise PackArchError(f"code object for {arch.name} is not a little-endian ELF64 file")
    (machine,) = struct.unpack_from("<H", code, 18)
    (flags,) = struct.unpack_from("<I", code, 48)
    expected = _EM_CUDA if arch.vendor == "cuda" else _EM_AMDGPU
    if machine != expected:
        raise PackArchError(f"code object is for ELF machine {machine}, {arch.name} is {expected}")
    number = flags & 0xFF
    if arch.vendor == "cuda" and code[8] >= _ABI_8:
        number = flags >> 8 & 0xFF
    if number != arch.elf_flags:
        raise PackArchError(
            f"code object is for arch number {number:#x} (e_flags {flags:#x}), "
            f"{arch.name} is {arch.elf_flags:#x}"
        )


def sections(code: bytes) -> list[Section]:
    """Sections of a little-endian ELF64 file. Raises struct.error, IndexError on a damaged one."""
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<HHH", code, 58)
    headers = [struct.unpack_from("<IIQQQQ", code, table + i * size) for i in range(count)]
    start = headers[names][4]

    def text(offset: int) -> str:
        return code[start + offset : code.index(b"\0", start + offset)].decode()

    return [Section(text(h[0]), code[h[4] : h[4] + h[5]]) for h in headers]
