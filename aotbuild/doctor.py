"""The diagnosis: which GPU is served by which pack, what is wrong, and what to do. Pure.

From the facts of `machine` and the results of `trial`. A problem makes `aotbuild doctor` fail; a
note does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotbuild.machine import Device, DriverState, FoundPack, Machine
from aotbuild.target import ARCH_BY_NAME, known_arches
from aotbuild.trial import Tried

_VENDOR_NAMES = {"cuda": "NVIDIA", "hip": "AMD"}
_REINSTALL = "install it again: pip install --force-reinstall aotbuild"
_INSTALL_DRIVER = {
    "cuda": "install the NVIDIA driver (525 or newer); in a container, start it with the NVIDIA "
    "Container Toolkit",
    "hip": "install the ROCm runtime (hip-runtime-amd), or name its folder in LD_LIBRARY_PATH; "
    "the one inside PyTorch's ROCm wheels serves a program that imports torch first",
}
_HIDE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}


@dataclass(frozen=True)
class Finding:
    what: str
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pairing:
    """A device and the packs that serve it: for each family the first on the search path."""

    device: Device
    packs: tuple[FoundPack, ...]


@dataclass(frozen=True)
class Diagnosis:
    pairings: tuple[Pairing, ...]
    tried: tuple[Tried, ...]
    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    verdict: str

    @property
    def healthy(self) -> bool:
        return not self.problems


def pair(machine: Machine) -> tuple[Pairing, ...]:
    """Pairs every device with the packs that the runtime would use for it."""
    packs = [pack for folder in machine.search_path for pack in folder.packs]
    pairings = []
    for device in machine.devices:
        first: dict[str, FoundPack] = {}
        for pack in packs:
            if pack.arch == device.arch:
                first.setdefault(pack.family, pack)
        serving = (
            pack for pack in first.values() if not pack.error and not _misfits(machine, pack)
        )
        pairings.append(Pairing(device, tuple(serving)))
    return tuple(pairings)


def diagnose(machine: Machine, tried: Sequence[Tried] = (), *, launch: bool = False) -> Diagnosis:
    """`launch`: a launch was asked for, so that a machine without a device is a problem."""
    pairings = pair(machine)
    problems = [
        *_runtime(machine),
        *_drivers(machine),
        *_packs(machine),
        *_unserved(machine, pairings),
        *(finding for one in tried for finding in _trials(one)),
    ]
    if launch and not machine.devices:
        problems.append(Finding("nothing was launched, since there is no GPU here"))
    return Diagnosis(
        pairings, tuple(tried), tuple(problems), tuple(_notes(machine)), _verdict(machine, problems)
    )


def _verdict(machine: Machine, problems: Sequence[Finding]) -> str:
    count = len(machine.devices)
    gpus = f"{count} GPU{'' if count == 1 else 's'}" if count else "no GPU here"
    if problems:
        return f"{gpus}; {len(problems)} problem{'' if len(problems) == 1 else 's'}"
    if count:
        return f"{gpus}, served"
    packs = sum(len(folder.packs) for folder in machine.search_path)
    found = f"{packs} pack{' is' if packs == 1 else 's are'} sound" if packs else "no pack found"
    return f"{gpus}; the runtime loads, {found}"


def _runtime(machine: Machine) -> list[Finding]:
    runtime, manifest = machine.runtime, machine.runtime.manifest
    if runtime.error:
        return [Finding(f"the runtime cannot be used: {runtime.error}", (_REINSTALL,))]
    if runtime.version != machine.aotbuild:
        mixed = f"aotbuild is {machine.aotbuild}, its runtime {runtime.file} is {runtime.version}"
        return [Finding(mixed, (_REINSTALL,))]
    if manifest and (manifest.version, manifest.abi) != (runtime.version, runtime.abi):
        return [
            Finding(
                f"{manifest.file} is of version {manifest.version}, ABI {manifest.abi}; "
                f"{runtime.file} is {runtime.version}, ABI {runtime.abi}",
                (_REINSTALL,),
            )
        ]
    return []


def _drivers(machine: Machine) -> list[Finding]:
    return [
        Finding(
            f"{_VENDOR_NAMES[state.vendor]} driver: {state.error}"
            + (f"; but there is {state.node}" if state.missing else f" ({state.file})"),
            (_INSTALL_DRIVER[state.vendor],),
        )
        for state in machine.drivers
        if state.error and (not state.missing or _is_lacking(machine, state))
    ]


def _is_lacking(machine: Machine, state: DriverState) -> bool:
    """Whether a driver that is missing is missed: the machine has such a GPU, and no other.
    (A processor's own AMD GPU, beside an NVIDIA one, is not what anyone came for.)"""
    return bool(state.node) and not machine.devices


def _packs(machine: Machine) -> list[Finding]:
    found = []
    for folder in machine.search_path:
        if folder.error:
            remedy = f"make it a folder that can be read, or take it off the path ({folder.origin})"
            found.append(Finding(f"cannot search {folder.folder}: {folder.error}", (remedy,)))
        for pack in folder.packs:
            remedies = ("remove it, and get it anew:", *_ways_to(machine, pack.arch))
            if pack.error:
                found.append(Finding(f"{pack.file} cannot be used: {pack.error}", remedies))
            elif misfits := _misfits(machine, pack):
                found.append(Finding(f"{pack.file} ({pack.producer}): {misfits}", remedies))
    return found


def _misfits(machine: Machine, pack: FoundPack) -> str:
    """Which contracts of the runtime the pack's operators do not keep; "" if all do."""
    manifest = machine.runtime.manifest
    known: Mapping[str, int] = manifest.contracts if manifest else {}
    return ", ".join(
        f"{name} has contract {contract}, the runtime calls contract {known[name]}"
        for name, contract in sorted(pack.contracts.items())
        if known.get(name, contract) != contract
    )


def _unserved(machine: Machine, pairings: Sequence[Pairing]) -> list[Finding]:
    """Devices that cannot be asked, and arches without a usable pack."""
    found = []
    by_arch: dict[str, list[Device]] = {}
    for device in (pairing.device for pairing in pairings if not pairing.packs):
        if device.error:
            install = (_INSTALL_DRIVER[device.vendor],) if machine.runtime.version else ()
            found.append(Finding(f"{device.label}: {device.error}", install))
        else:
            by_arch.setdefault(device.arch, []).append(device)
    for arch, devices in by_arch.items():
        labels = ", ".join(device.label for device in devices)
        if remedies := _ways_to(machine, arch):
            found.append(Finding(f"no usable pack for {arch} ({labels})", remedies))
        else:
            hide = f"hide it with {_HIDE[devices[0].vendor]}; there are images for {known_arches()}"
            found.append(Finding(f"aotbuild builds no images for {arch} ({labels})", (hide,)))
    return found


def _ways_to(machine: Machine, arch: str) -> tuple[str, ...]:
    """Commands that bring a pack for an arch, one of which is enough."""
    if arch not in ARCH_BY_NAME:
        return ()
    users = [
        f.folder for f in machine.search_path if f.origin in ("XDG_DATA_HOME", "home directory")
    ]
    output = users[0] if users else "DIR, with DIR in AOTBUILD_IMAGE_PATH"
    return (
        f"aotbuild fetch --arch {arch}",
        f"pip install 'aotbuild[{arch.replace('_', '-')}]'",
        f"aotbuild compile --arch {arch} --profile smoke --output {output}",
    )


def _trials(tried: Tried) -> list[Finding]:
    return [
        Finding(
            f"{tried.device.label}, attention in {trial.dtype}: "
            + (
                trial.error
                or f"wrong results: relative error {trial.out_error:.2g} of out, "
                f"{trial.lse_error:.2g} of lse"
            )
        )
        for trial in tried.trials
        if not trial.passed
    ]


def _notes(machine: Machine) -> list[Finding]:
    notes = []
    if not machine.runtime.error and machine.runtime.manifest is None:
        notes.append(
            Finding(
                f"{machine.runtime.file} has no manifest (share/aotbuild/runtime.json of its "
                "prefix), so contracts of packs were not compared"
            )
        )
    compiler = machine.compiler
    if compiler.version and compiler.wanted not in ("", compiler.version):
        what = f"triton is {compiler.version}; compiling packs needs {compiler.wanted}"
        notes.append(
            Finding(what, ("pip install 'aotbuild[compile]' in an environment of its own",))
        )
    notes += [
        Finding(f"{folder.folder} ({folder.origin}) does not exist")
        for folder in machine.search_path
        if folder.origin == "AOTBUILD_IMAGE_PATH" and not folder.exists
    ]
    return notes
