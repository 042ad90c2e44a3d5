"""The arch type, the only arch table, and the parsing of what people type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from aotbuild.errors import UsageError

Vendor = Literal["cuda", "hip"]
Tier = Literal["stable", "experimental", "preview"]


@dataclass(frozen=True)
class Arch:
    """A GPU architecture.

    `tuning` names the arch whose tuned configs serve this one. `fp8` are the float8 formats its
    matrix units take. `tf32`: it has reduced-precision fp32 units (TF32 or XF32). `tma`: tensor
    descriptors are hardware tensor maps or TDM descriptors. `elf_flags` is the arch field of a
    code object's ELF e_flags: EF_AMDGPU_MACH for AMD, 10 x capability for NVIDIA.
    `shared` is the shared memory (LDS) that one block can have, in bytes.
    """

    name: str
    vendor: Vendor
    family: str
    warp_size: int
    tier: Tier
    elf_flags: int
    shared: int
    tuning: str = ""
    fp8: tuple[str, ...] = ()
    tf32: bool = False
    tma: bool = False

    @property
    def tuned_as(self) -> str:
        """Name of the arch whose tuning table is used."""
        return self.tuning or self.name


_OCP = ("e4m3fn", "e5m2")
_FNUZ = ("e4m3fnuz", "e5m2fnuz")
_CDNA_LDS = 65536


def _amd(name: str, family: str, warp: int, tier: Tier, mach: int, **more: object) -> Arch:
    shared = 163840 if name == "gfx950" else 327680 if name == "gfx1250" else _CDNA_LDS
    return Arch(name, "hip", family, warp, tier, mach, shared, **more)  # type: ignore[arg-type]


# Sources: DESIGN.md of the project (tiers), the AMDGPU ELF ABI (EF_AMDGPU_MACH), the CUDA
# programming guide's table of compute capabilities (shared memory per block, opt-in).
ARCHES: tuple[Arch, ...] = (
    _amd("gfx90a", "CDNA2", 64, "stable", 0x3F),
    _amd("gfx942", "CDNA3", 64, "stable", 0x4C, fp8=_FNUZ, tf32=True),
    _amd("gfx950", "CDNA4", 64, "stable", 0x4F, fp8=_OCP),
    _amd("gfx1100", "RDNA3", 32, "experimental", 0x41),
    _amd("gfx1101", "RDNA3", 32, "experimental", 0x46, tuning="gfx1100"),
    _amd("gfx1102", "RDNA3", 32, "experimental", 0x47, tuning="gfx1100"),
    _amd("gfx1103", "RDNA3", 32, "experimental", 0x44, tuning="gfx1100"),
    _amd("gfx1150", "RDNA3.5", 32, "experimental", 0x43, tuning="gfx1100"),
    _amd("gfx1151", "RDNA3.5", 32, "experimental", 0x4A, tuning="gfx1100"),
    _amd("gfx1152", "RDNA3.5", 32, "experimental", 0x55, tuning="gfx1100"),
    _amd("gfx1153", "RDNA3.5", 32, "experimental", 0x58, tuning="gfx1100"),
    _amd("gfx1200", "RDNA4", 32, "experimental", 0x48, tuning="gfx1201", fp8=_OCP),
    _amd("gfx1201", "RDNA4", 32, "stable", 0x4E, fp8=_OCP),
    _amd("gfx1250", "gfx1250", 32, "preview", 0x49, tuning="gfx1201", fp8=_OCP, tma=True),
    Arch("sm_80", "cuda", "Ampere", 32, "stable", 80, 166912, tf32=True),
    Arch("sm_86", "cuda", "Ampere", 32, "stable", 86, 101376, tf32=True),
    Arch("sm_89", "cuda", "Ada", 32, "stable", 89, 101376, tuning="sm_86", fp8=_OCP, tf32=True),
    Arch("sm_90", "cuda", "Hopper", 32, "stable", 90, 232448, fp8=_OCP, tf32=True, tma=True),
    Arch("sm_100", "cuda", "Blackwell", 32, "experimental", 100, 232448, tuning="sm_90", fp8=_OCP, tf32=True, tma=True),
    Arch("sm_103", "cuda", "Blackwell", 32, "experimental", 103, 232448, tuning="sm_90", fp8=_OCP, tf32=True, tma=True),
    Arch("sm_120", "cuda", "Blackwell", 32, "experimental", 120, 101376, tuning="sm_86", fp8=_OCP, tf32=True, tma=True),
)
