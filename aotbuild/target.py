"""The arch type, the only arch table, and the parsing of what people type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aotbuild.errors import UsageError
from aotbuild.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

Vendor = Literal["cuda", "hip"]
Tier = Literal["stable", "experimental", "preview"]
#: A pack stores a tier as its place in this list.
TIERS: tuple[Tier, ...] = ("stable", "experimental", "preview")


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


def _nvidia(name: str, family: str, tier: Tier, shared: int, **more: object) -> Arch:
    flags = int(name.removeprefix("sm_"))
    return Arch(name, "cuda", family, 32, tier, flags, shared, tf32=True, **more)  # type: ignore[arg-type]


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
    _nvidia("sm_80", "Ampere", "stable", 166912),
    _nvidia("sm_86", "Ampere", "stable", 101376),
    _nvidia("sm_89", "Ada", "stable", 101376, tuning="sm_86", fp8=_OCP),
    _nvidia("sm_90", "Hopper", "stable", 232448, fp8=_OCP, tma=True),
    _nvidia("sm_100", "Blackwell", "experimental", 232448, tuning="sm_90", fp8=_OCP, tma=True),
    _nvidia("sm_103", "Blackwell", "experimental", 232448, tuning="sm_90", fp8=_OCP, tma=True),
    _nvidia("sm_120", "Blackwell", "experimental", 101376, tuning="sm_86", fp8=_OCP, tma=True),
)

ARCH_BY_NAME = {arch.name: arch for arch in ARCHES}


@dataclass(frozen=True)
class Features:
    """Settings of a device that AMD target names carry. None: the name does not say."""

    sramecc: bool | None = None
    xnack: bool | None = None

    def __str__(self) -> str:
        """As AMD writes it, in its order: `:sramecc+:xnack-`; empty when nothing is set."""
        parts = (("sramecc", self.sramecc), ("xnack", self.xnack))
        return "".join(f":{name}{'+' if on else '-'}" for name, on in parts if on is not None)


@dataclass(frozen=True)
class ArchSpec:
    """An arch as someone named it. Images serve every feature setting, so `features` never
    choose what is built; they are kept for the message that says so.
    """

    arch: Arch
    features: Features = Features()

    def __str__(self) -> str:
        return f"{self.arch.name}{self.features}"


_FEATURE_NAMES = ("sramecc", "xnack")
#: From this capability on, Triton builds the arch-specific form (`sm_90a`); older have none.
_FIRST_SPECIFIC = 90
_SEPARATORS = re.compile(r"[\s,;]+")
_GENERIC = re.compile(r"gfx[0-9]+(-[0-9]+)*-generic")
# sm_90, sm90, compute_90, 90, 9.0, each with an optional "a"; what CMake (-real) and
# PyTorch (+PTX: code for the arch, and PTX besides, which packs do not hold) add to them.
# cmake/AotbuildProvision.cmake has the same rules, and tests/data/arch_words.csv is their test.
_CUDA = re.compile(
    r"(?P<prefix>sm_?|compute_?)?(?P<major>[0-9]+?)\.?(?P<minor>[0-9])(?P<form>[a-z]?)"
    r"(?P<kind>-real|-virtual|\+ptx)?"
)


def known_arches() -> str:
    """All names of the table, for messages and help."""
    return ", ".join(ARCH_BY_NAME)


def parse_arch(text: str) -> ArchSpec:
    """Reads one arch in any usual spelling: `gfx942:sramecc+:xnack-`, `GFX950`, `sm90`, `9.0a`.

    Raises UsageError, which lists the known arches and the nearest one.
    """
    word = text.strip()
    name, *settings = word.lower().split(":")
    if name.startswith("gfx"):
        if _GENERIC.fullmatch(name):
            raise UsageError(
                f"arch {word!r} is a generic target; images are built for one arch each. "
                f"Name the arches that you need: {known_arches()}"
            )
        arch = ARCH_BY_NAME.get(name)
    else:
        arch = _cuda_arch(name, word)
    if arch is None:
        raise UsageError(
            f"unknown arch {word!r}.{did_you_mean(name, ARCH_BY_NAME)} Known: {known_arches()}"
        )
    return ArchSpec(arch, _features(arch, settings, word))


def parse_arch_list(texts: Iterable[str]) -> tuple[ArchSpec, ...]:
    """Reads what `arch_words` finds. Of several spellings of an arch it keeps the first.

    Raises UsageError for an unknown arch, and when nothing is named.
    """
    found: dict[str, ArchSpec] = {}
    for word in arch_words(texts):
        spec = parse_arch(word)
        found.setdefault(spec.arch.name, spec)
    return tuple(found.values())


def arch_words(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of lists separated by commas, semicolons and blanks in any mixture, from one or
    more options; in order, each once. Raises UsageError when there is none.
    """
    given = tuple(texts)
    words = [word for text in given for word in _SEPARATORS.split(text) if word]
    if not words:
        shown = ", ".join(map(repr, given)) or "nothing"
        raise UsageError(f"no arch named (got {shown}). Known: {known_arches()}")
    return tuple(dict.fromkeys(words))


def _cuda_arch(name: str, word: str) -> Arch | None:
    match = _CUDA.fullmatch(name)
    if match is None:
        return None
    if match["kind"] == "-virtual":
        raise UsageError(
            f"arch {word!r} asks for PTX, which packs do not hold. "
            f"Name each arch that you need: {known_arches()}"
        )
    arch = ARCH_BY_NAME.get(f"sm_{match['major']}{match['minor']}")
    forms = ("", "a") if arch is not None and arch.elf_flags >= _FIRST_SPECIFIC else ("",)
    if arch is not None and match["form"] not in forms:
        raise UsageError(
            f"arch {word!r}: form {match['form']!r} of {arch.name} is not built. "
            f"Write {arch.name!r}"
        )
    return arch


def _features(arch: Arch, settings: list[str], word: str) -> Features:
    """Reads `sramecc+`, `xnack-` and so on; only AMD's CDNA arches have such settings."""
    allowed = _FEATURE_NAMES if arch.family.startswith("CDNA") else ()
    found: dict[str, bool] = {}
    for setting in settings:
        name, sign = setting[:-1], setting[-1:]
        if name not in allowed or sign not in ("+", "-"):
            have = ", ".join(f"{feature}+ or {feature}-" for feature in allowed) or "none"
            raise UsageError(
                f"arch {word!r}: unknown feature {setting!r}; {arch.name} has: {have}."
                f"{did_you_mean(name, allowed)}"
            )
        if found.setdefault(name, sign == "+") != (sign == "+"):
            raise UsageError(f"arch {word!r}: feature {name!r} is both on and off")
    return Features(found.get("sramecc"), found.get("xnack"))
