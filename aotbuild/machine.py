"""What a machine has of what aotbuild needs, and of aotbuild itself: facts, and no judgement."""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aotbuild
from aotbuild.drivers import DRIVERS, Driver
from aotbuild.errors import LaunchError, PackArchError, PackError, Status
from aotbuild.manifest import MANIFEST, Manifest, read_manifest
from aotbuild.pack import check_codes, open_pack
from aotbuild.target import TIERS

if TYPE_CHECKING:
    from aotbuild.records import Pack
    from aotbuild.target import Vendor

_PACK_SUFFIX = ".aotpack"
_DEFINITION = re.compile(r"^\s*#\s*define\s+(\w+)\s+\(?([0-9]+)\)?", re.MULTILINE)


@dataclass(frozen=True)
class Runtime:
    """The library that Python calls. `error`: why it cannot be loaded, or its manifest not read."""

    file: str = ""
    version: str = ""
    abi: int = -1
    manifest: Manifest | None = None
    error: str = ""


@dataclass(frozen=True)
class Compiler:
    """Triton, which only compiling needs; versions are empty where there is none."""

    version: str
    wanted: str


@dataclass(frozen=True)
class Toolkit:
    """Headers of a vendor's toolkit: what building from source would meet."""

    name: str
    version: str
    folder: str


@dataclass(frozen=True)
class DriverState:
    """A driver library. `kernel` is the version of the kernel's part, and `node` its device file,
    where these exist. `missing`: the loader has none; `error` is what it or the driver said."""

    vendor: Vendor
    file: str = ""
    version: str = ""
    devices: int = 0
    kernel: str = ""
    node: str = ""
    missing: bool = False
    error: str = ""


@dataclass(frozen=True)
class Device:
    vendor: Vendor
    number: int
    arch: str = ""
    name: str = ""
    error: str = ""

    @property
    def label(self) -> str:
        return f"{self.vendor}:{self.number}"


@dataclass(frozen=True)
class FoundPack:
    """A file where a pack should be. `error`: why it is none that can be used."""

    file: str
    arch: str
    family: str
    producer: str = ""
    profile: str = ""
    tier: str = ""
    images: int = 0
    contracts: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Folder:
    """An entry of the search path."""

    folder: str
    origin: str
    exists: bool = False
    packs: tuple[FoundPack, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Machine:
    aotbuild: str
    python: str
    runtime: Runtime
    compiler: Compiler
    toolkits: tuple[Toolkit, ...]
    drivers: tuple[DriverState, ...]
    devices: tuple[Device, ...]
    search_path: tuple[Folder, ...]


def examine(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Looks at everything. Nothing is launched. `root` is where files of the system lie."""
    runtime = _runtime()
    states, devices = [], []
    for kind in DRIVERS:
        state, driver = _driver(kind, root)
        states.append(state)
        if driver is not None:
            devices += [_device(driver, number, runtime) for number in range(state.devices)]
    return Machine(
        aotbuild=aotbuild.__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        runtime=runtime,
        compiler=_compiler(),
        toolkits=find_toolkits(environ, root),
        drivers=tuple(states),
        devices=tuple(devices),
        search_path=() if runtime.error else _search_path(),
    )


# ---- aotbuild itself --------------------------------------------------------------------------


def _runtime() -> Runtime:
    package = Path(__file__).parent
    try:
        native = importlib.import_module("aotbuild._native")
    except ImportError as error:
        found = sorted(path.name for path in package.glob("_native*.so"))
        what = f"{package / found[0]}: {error}" if found else f"{package} holds no _native*.so"
        return Runtime(error=what)
    file = str(native.library_file())
    loaded = Runtime(file, native.version(), native.abi_version())
    try:
        return replace(loaded, manifest=manifest_of(Path(file)))
    except (OSError, ValueError) as error:
        return replace(loaded, error=f"its manifest is damaged: {error}")


def manifest_of(library: Path) -> Manifest | None:
    """The manifest of the prefix that a library lies in: lib, lib64 or lib/<triplet> of it."""
    for prefix in list(library.resolve().parents)[1:3]:
        if (prefix / MANIFEST).is_file():
            return read_manifest(prefix / MANIFEST)
    return None


def _compiler() -> Compiler:
    wanted = ""
    for requirement in metadata.requires("aotbuild") or ():
        if match := re.match(r"triton *\(?== *([0-9.]+)", requirement):
            wanted = match[1]
    try:
        return Compiler(metadata.version("triton"), wanted)
    except metadata.PackageNotFoundError:
        return Compiler("", wanted)


# ---- Toolkits, drivers, devices ---------------------------------------------------------------


@dataclass(frozen=True)
class _Kit:
    name: str
    header: str
    variables: tuple[str, ...]
    places: tuple[str, ...]


_KITS = (
    _Kit("CUDA", "include/cuda.h", ("CUDA_HOME", "CUDA_PATH"), ("usr/local/cuda*", "usr")),
    _Kit("ROCm", "include/hip/hip_version.h", ("ROCM_PATH", "HIP_PATH"), ("opt/rocm*", "usr")),
)


def find_toolkits(environ: Mapping[str, str], root: Path) -> tuple[Toolkit, ...]:
    """Toolkits in their usual places, and where their own variables say."""
    found: dict[str, Toolkit] = {}
    for kit in _KITS:
        named = [Path(environ[name]) for name in kit.variables if environ.get(name)]
        usual = [path for place in kit.places for path in sorted(root.glob(place))]
        for folder in (*named, *usual):
            file = folder / kit.header
            if file.is_file():
                version = _header_version(file)
                found.setdefault(str(file.resolve()), Toolkit(kit.name, version, str(folder)))
    return tuple(found.values())


def _header_version(file: Path) -> str:
    try:
        numbers = dict(_DEFINITION.findall(file.read_text("utf-8", errors="replace")))
    except OSError:
        return "unknown"
    if cuda := int(numbers.get("CUDA_VERSION", 0)):
        return f"{cuda // 1000}.{cuda % 1000 // 10}"
    parts = [numbers.get(f"HIP_VERSION_{part}") for part in ("MAJOR", "MINOR")]
    return ".".join(part for part in parts if part) or "unknown"


#: Where the kernel's driver tells its version, and the device file that it makes.
_KERNEL_PARTS: Mapping[str, tuple[str, str]] = {
    "cuda": ("proc/driver/nvidia/version", "dev/nvidiactl"),
    "hip": ("sys/module/amdgpu/version", "dev/kfd"),
}


def _driver(kind: type[Driver], root: Path) -> tuple[DriverState, Driver | None]:
    version, node = (root / place for place in _KERNEL_PARTS[kind.vendor])
    state = DriverState(
        kind.vendor, kernel=_kernel_version(version), node=str(node) if node.exists() else ""
    )
    try:
        driver = kind()
    except LaunchError as error:
        missing = error.status is Status.NO_DRIVER
        return replace(state, missing=missing, error=str(error)), None
    state = replace(state, file=driver.file())
    try:
        return replace(state, version=driver.version(), devices=driver.count()), driver
    except LaunchError as error:
        return replace(state, error=str(error)), None


def _kernel_version(file: Path) -> str:
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(r"[0-9]+(\.[0-9]+)+", text)
    return match[0] if match else ""


def _device(driver: Driver, number: int, runtime: Runtime) -> Device:
    """A device, with its arch as the runtime has it."""
    if not runtime.version:
        return Device(driver.vendor, number, error="the runtime does not load")
    native = importlib.import_module("aotbuild._native")
    try:
        arch = native.device_arch(driver.device_type, number)
    except LaunchError as error:
        return Device(driver.vendor, number, error=str(error))
    try:
        return Device(driver.vendor, number, arch, driver.device_name(number))
    except LaunchError:  # the name is for people
        return Device(driver.vendor, number, arch)


# ---- Packs ------------------------------------------------------------------------------------


def _search_path() -> tuple[Folder, ...]:
    from aotbuild.runtime import Library

    return tuple(look_into(folder, origin) for folder, origin in Library().search_path())


def look_into(folder: str, origin: str) -> Folder:
    """An entry of the search path, with every pack in it opened and its images verified."""
    try:
        files = sorted(
            file
            for arch in Path(folder).iterdir()
            if arch.is_dir()
            for file in arch.iterdir()
            if file.name.endswith(_PACK_SUFFIX)
        )
    except FileNotFoundError:
        return Folder(folder, origin)
    except OSError as error:
        return Folder(folder, origin, exists=True, error=f"{error.filename}: {error.strerror}")
    return Folder(folder, origin, exists=True, packs=tuple(map(read_pack, files)))


def read_pack(file: Path) -> FoundPack:
    """A pack file, in the place that names its arch and family."""
    arch, family = file.parent.name, file.name.removesuffix(_PACK_SUFFIX)
    try:
        pack = open_pack(file)
        if (pack.arch, pack.family) != (arch, family):
            inside = f"{pack.arch}/{pack.family}"
            raise PackArchError(f"it holds {inside}, its place says {arch}/{family}")
        check_codes(pack)
    except PackError as error:
        return FoundPack(str(file), arch, family, error=str(error))
    return _found(file, pack)


def _found(file: Path, pack: Pack) -> FoundPack:
    meta: dict[str, Any] = json.loads(pack.meta)
    return FoundPack(
        str(file),
        pack.arch,
        pack.family,
        producer=pack.producer,
        profile=str(meta.get("profile", "unknown")),
        tier=TIERS[pack.tier],
        images=len(pack.images),
        contracts=pack.contracts,
    )
