"""What runs inside a build's worker processes. Only there is triton imported, once a process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotbuild import compile as compiler
from aotbuild.cache import ImageCache

if TYPE_CHECKING:
    from pathlib import Path

    from aotbuild.plan import Variant
    from aotbuild.records import CompiledImage


@dataclass(frozen=True)
class Job:
    """One variant to compile. `scratch` is the job's own folder, not made yet; `cache` that of
    the cache, or None.
    """

    variant: Variant
    family_folder: Path
    scratch: Path
    cache: Path | None
    attempt: int = 0

    @property
    def folder(self) -> Path:
        """Where this attempt works; not made yet."""
        return self.scratch / str(self.attempt)

    @property
    def log(self) -> Path:
        """What the job wrote to its standard output and error; gone when it succeeded."""
        return self.folder / "log"


@dataclass(frozen=True)
class Outcome:
    """What a job gave, and how long it took."""

    image: CompiledImage
    seconds: float
    cached: bool


def run(job: Job) -> Outcome:
    """Compiles a variant, or finds it in the cache. Raises CompileError."""
    started = time.monotonic()
    _confine(job)
    image, key = None, ""
    if job.cache is not None:
        key = compiler.cache_key(job.family_folder, job.variant)
        image = ImageCache(job.cache).get(key)
    cached = image is not None
    if image is None:
        image = compiler.compile_variant(job.family_folder, job.variant)
        if job.cache is not None:
            ImageCache(job.cache).put(key, image, job.folder)
    shutil.rmtree(job.scratch, ignore_errors=True)
    return Outcome(image, time.monotonic() - started, cached)


def _confine(job: Job) -> None:
    """Sends all that the job writes to its scratch folder: the compiler's stages, its temporary
    files, and what LLVM prints, which is often the only account of a crash.
    """
    job.folder.mkdir(parents=True)
    os.environ["TRITON_CACHE_DIR"] = str(job.folder / "triton")
    os.environ["TMPDIR"] = tempfile.tempdir = str(job.folder)
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
