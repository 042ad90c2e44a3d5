"""One variant: from a kernel's source to a code object and its launch facts.

The only module that imports triton, and only inside `compile_variant`: the parent process plans,
packs and reports without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from aotbuild import arguments, elf, resources
from aotbuild.errors import AotbuildError, CompileError, SpecError
from aotbuild.families import LoadedFamily, load_family
from aotbuild.plan import Variant
from aotbuild.records import CompiledImage, LaunchFacts
from aotbuild.spec import Operator

#: The Triton whose launch contract `arguments` implements; pyproject.toml pins it.
_PINNED = "3.9.0"
#: Raise when the meaning of CompiledImage changes, so that old cache entries are not used.
_CACHE_EPOCH = 1
#: Environment variables of the compiler that do not change its output, or that we set ourselves.
_HARMLESS = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_DISABLE_LINE_INFO")
#: Options that only one vendor's back end knows; a config may name them for both.
_VENDOR_OPTIONS = {
    "hip": ("waves_per_eu", "matrix_instr_nonkdim", "kpack", "wgp_cu_mode"),
    "cuda": ("maxnreg", "ptx_options", "launch_pdl"),
}


def toolchain() -> Mapping[str, str]:
    """Versions of what makes the images, for provenance and the cache."""
    return {"triton": importlib.metadata.version("triton"), **_environment()}


def _environment() -> dict[str, str]:
    """Compiler variables that are set, since they can change the code. A file, such as another
    assembler, is known by its content: paths do not belong in a pack."""
    prefixes = ("TRITON_", "AMDGCN_", "LLVM_", "MLIR_", "DISABLE_LLVM_OPT", "NVPTX_")
    found = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
    return {k: _content(v) for k, v in sorted(found.items()) if k not in _HARMLESS}


def _content(value: str) -> str:
    path = Path(value)
    if not (path.is_absolute() and path.is_file()):
        return value
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def warm() -> None:
    """Imports the compiler, so that the first variant's time does not include it."""
    with contextlib.suppress(ImportError):  # the first variant reports it
        importlib.import_module("triton.compiler")


def cache_key(folder: Path, variant: Variant) -> str:
    """Hex digest of everything that decides the image: source, variant, compiler, environment.
    Tuning tables are not part of it: the variant holds the config."""
    parts = (_CACHE_EPOCH, _source_hash(folder), variant.arch, variant.name, dict(toolchain()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.cache
def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@functools.cache
def _family(folder: Path) -> LoadedFamily:
    """A description is read once per worker: it holds functions, which do not travel."""
    return load_family(folder)


def load_kernel(folder: Path) -> ModuleType:
    """The family's kernel.py, imported as part of a package of its own so that it may import
    modules beside it. Raises CompileError."""
    package = f"aotbuild_kernels_{folder.name}_{_source_hash(folder)[:16]}"
    if package not in sys.modules:
        module = ModuleType(package)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
    try:
        return importlib.import_module(f"{package}.kernel")
    except Exception as error:
        raise CompileError(f"cannot import {folder / 'kernel.py'}: {error!r}") from error


def compile_variant(folder: Path, variant: Variant) -> CompiledImage:
    """Compiles one variant for a GPU that need not be present.

    Raises CompileError naming the variant and carrying the compiler's message, and SpecError when
    the description does not fit the kernel.
    """
    try:
        return _compile(folder, variant)
    except AotbuildError as error:
        raise type(error)(f"{variant.arch.name} {variant.name}: {error}") from error
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise CompileError(f"{variant.arch.name} {variant.name}: {detail}") from error


def _compile(folder: Path, variant: Variant) -> CompiledImage:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.compilation.disable_line_info = True
    arch = variant.arch
    operator = _family(folder).family.operator(variant.operator)
    function = getattr(load_kernel(folder), operator.kernel, None)
    if function is None:
        raise SpecError(f"{folder / 'kernel.py'} has no kernel {operator.kernel!r}")
    bound = arguments.bind(operator, variant, tuple(function.arg_names))
    source = ASTSource(function, dict(bound.signature), dict(bound.constants), dict(bound.hints))
    number = int(arch.name.removeprefix("sm_")) if arch.vendor == "cuda" else arch.name
    target = GPUTarget(arch.vendor, number, arch.warp_size)
    options = _options(operator, variant)
    compiled = triton.compile(source, target=target, options=options)
    metadata = compiled.metadata._asdict()
    if unknown := sorted(set(options) - set(metadata)):
        raise SpecError(f"{unknown} are no options of Triton's {arch.vendor} back end")
    code = bytes(compiled.asm["cubin" if arch.vendor == "cuda" else "hsaco"])
    elf.check_arch(code, arch)
    if metadata["shared"] > arch.shared:
        raise CompileError(
            f"needs {metadata['shared']} bytes of shared memory, a block on {arch.name} has "
            f"{arch.shared}: choose smaller tiles or fewer stages"
        )
    facts = _facts(operator, variant, bound, metadata, code)
    return CompiledImage(facts, options, code)


def _options(operator: Operator, variant: Variant) -> dict[str, Any]:
    """Compile options: those of the config that the kernel does not take, and the fixed ones.
    FP fusion is stated because its default changes between Triton versions."""
    options: dict[str, Any] = {"enable_fp_fusion": True, **operator.options}
    options.update(arguments.compile_options(operator, variant))
    other = _VENDOR_OPTIONS["hip" if variant.arch.vendor == "cuda" else "cuda"]
    return {name: value for name, value in options.items() if name not in other}


def _facts(
    operator: Operator,
    variant: Variant,
    bound: arguments.Bound,
    metadata: Mapping[str, Any],
    code: bytes,
) -> LaunchFacts:
    used = resources.of(code, variant.arch)
    physical = arguments.physical(operator, variant, bound, metadata)
    widths = tuple(arguments.width(record) for record in physical)
    if widths != used.arguments:
        raise CompileError(
            f"the kernel takes arguments of {used.arguments} bytes, the launch contract of Triton "
            f"{_PINNED} makes {widths}; this Triton is not one that aotbuild knows"
        )
    ctas = int(metadata["num_ctas"])
    return LaunchFacts(
        symbol=metadata["name"],
        arguments=physical,
        shared=metadata["shared"],
        threads=metadata["num_warps"] * variant.arch.warp_size,
        num_ctas=ctas,
        cluster=(ctas, 1, 1),
        cooperative=bool(metadata["launch_cooperative_grid"]),
        programmatic=bool(metadata.get("launch_pdl", False)),
        global_scratch=metadata["global_scratch_size"],
        global_scratch_align=metadata["global_scratch_align"],
        profile_scratch=metadata["profile_scratch_size"],
        profile_scratch_align=metadata["profile_scratch_align"],
        registers=used.registers,
        spills=used.spills,
    )
