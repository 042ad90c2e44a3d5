"""Building packs: variants spread over worker processes, with a cache and all failures told.

Either every pack that was asked for is written, or none is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pebble import ProcessExpired, ProcessPool

from aotbuild import compile as compiler
from aotbuild import worker
from aotbuild.assemble import build_pack
from aotbuild.cache import ImageCache, temporary_folder
from aotbuild.errors import AotbuildError, CompileError, UsageError
from aotbuild.pack import encode, write_file
from aotbuild.plan import Variant, plan
from aotbuild.worker import Job, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from aotbuild.config import Settings
    from aotbuild.families import LoadedFamily
    from aotbuild.target import Arch

#: How many of a pack's slowest variants a summary keeps.
_SLOWEST = 3
#: How many lines of what a failed job printed go into its message.
_LOG_LINES = 40


class Watcher(Protocol):
    """Is told how a build goes on."""

    def started(self, variants: int, workers: int) -> None:
        """Work begins."""

    def finished(self, variant: Variant, seconds: float, *, cached: bool) -> None:
        """A variant was compiled, or found in the cache."""

    def failed(self, variant: Variant, message: str) -> None:
        """A variant failed; the build goes on, to find the other failures."""

    def retried(self, variant: Variant, message: str) -> None:
        """A variant's worker died; it will be tried once more, alone."""


@dataclass(frozen=True)
class Timing:
    """How long a variant took to compile."""

    variant: str
    seconds: float


@dataclass(frozen=True)
class PackSummary:
    """A pack that was written. `raw_bytes` counts every image's code, `packed_bytes` the file;
    `seconds` is the time that workers spent on it.
    """

    arch: str
    family: str
    path: Path
    images: int
    unique_images: int
    raw_bytes: int
    packed_bytes: int
    cached: int
    seconds: float
    slowest: tuple[Timing, ...]


@dataclass(frozen=True)
class BuildResult:
    """A build that succeeded, with `packs` in the order that they were asked for."""

    packs: tuple[PackSummary, ...]
    toolchain: Mapping[str, str]
    seconds: float


@dataclass(frozen=True)
class _Target:
    """A pack to build."""

    family: LoadedFamily
    arch: Arch
    variants: tuple[Variant, ...]


def build(
    families: Sequence[LoadedFamily],
    arches: Sequence[Arch],
    settings: Settings,
    producer: str,
    watcher: Watcher,
) -> BuildResult:
    """Compiles and writes the pack of every family for every arch.

    Raises CompileError with every variant that failed, SpecError, and UsageError when the output
    or the cache cannot be written to; then no pack is written.
    """
    started = time.monotonic()
    targets = [
        _Target(family, arch, plan(family, arch, settings.profile))
        for arch in arches
        for family in families
    ]
    _check_writable(settings.output)
    cache = ImageCache(settings.cache_dir)
    with cache.run_folder() if settings.cache else temporary_folder() as scratch:
        jobs = _jobs(targets, scratch, settings)
        workers = min(settings.jobs, len(jobs))
        watcher.started(len(jobs), workers)
        outcomes, toolchain = _Run(settings.timeout, watcher).run(jobs, workers)
    if settings.cache:
        cache.prune(settings.cache_limit)
    packs = _write_packs(targets, outcomes, settings, toolchain, producer)
    return BuildResult(packs, toolchain, time.monotonic() - started)


def _jobs(targets: Sequence[_Target], scratch: Path, settings: Settings) -> list[Job]:
    number = itertools.count()
    cache = settings.cache_dir if settings.cache else None
    return [
        Job(variant, target.family.folder, scratch / str(next(number)), cache)
        for target in targets
        for variant in target.variants
    ]


def _check_writable(output: Path) -> None:
    """Fails now rather than after hours of compiling; makes nothing."""
    folder = output.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"output {output} cannot be a folder: {folder} is a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"output {output} cannot be written: no permission for {folder}")


def _write_packs(
    targets: Sequence[_Target],
    outcomes: Sequence[Outcome],
    settings: Settings,
    toolchain: Mapping[str, str],
    producer: str,
) -> tuple[PackSummary, ...]:
    """Makes every pack before it writes the first."""
    made: list[tuple[PackSummary, bytes]] = []
    rest = iter(outcomes)
    for target in targets:
        mine = list(itertools.islice(rest, len(target.variants)))
        images = [(v, o.image) for v, o in zip(target.variants, mine, strict=True)]
        pack = build_pack(
            target.family, target.arch, settings.profile.value, images, toolchain, producer
        )
        data = encode(pack)
        path = settings.output / target.arch.name / f"{target.family.name}.aotpack"
        made.append((_summary(target, mine, path, len(data)), data))
    for summary, data in made:
        write_file(summary.path, data)
    return tuple(summary for summary, _ in made)


def _summary(target: _Target, outcomes: Sequence[Outcome], path: Path, packed: int) -> PackSummary:
    timings = sorted(
        (
            Timing(variant.name, outcome.seconds)
            for variant, outcome in zip(target.variants, outcomes, strict=True)
            if not outcome.cached
        ),
        key=lambda timing: (-timing.seconds, timing.variant),
    )
    return PackSummary(
        arch=target.arch.name,
        family=target.family.name,
        path=path,
        images=len(outcomes),
        unique_images=len({outcome.image.code for outcome in outcomes}),
        raw_bytes=sum(len(outcome.image.code) for outcome in outcomes),
        packed_bytes=packed,
        cached=sum(outcome.cached for outcome in outcomes),
        seconds=sum(outcome.seconds for outcome in outcomes),
        slowest=tuple(timings[:_SLOWEST]),
    )


class _Run:
    """All jobs of a build on their way through the workers."""

    def __init__(self, timeout: float, watcher: Watcher) -> None:
        self.timeout = timeout
        self.watcher = watcher
        self.outcomes: dict[Path, Outcome] = {}  # by the job's scratch folder
        self.failures: dict[Path, str] = {}
        self.died: list[Job] = []

    def run(self, jobs: Sequence[Job], workers: int) -> tuple[list[Outcome], Mapping[str, str]]:
        """Outcomes in the order of `jobs`, and the toolchain. Raises CompileError."""
        with _pool(workers) as pool:
            toolchain = pool.schedule(compiler.toolchain).result()
            for job, future in self._finished(pool, jobs, 2 * workers):
                self._take(job, future, alone=False)
        if self.died:
            with _pool(1) as pool:
                for job, future in self._finished(pool, [_again(job) for job in self.died], 1):
                    self._take(job, future, alone=True)
        if self.failures:
            raise CompileError(_all_failures(list(self.failures.values()), len(jobs)))
        return [self.outcomes[job.scratch] for job in jobs], toolchain

    def _finished(
        self, pool: ProcessPool, jobs: Sequence[Job], ahead: int
    ) -> Iterator[tuple[Job, Future[Outcome]]]:
        """Jobs as they end, with at most `ahead` of them handed to the pool at a time."""
        pending: dict[Future[Outcome], Job] = {}
        waiting = iter(jobs)
        while True:
            for job in itertools.islice(waiting, ahead - len(pending)):
                pending[pool.schedule(worker.run, args=(job,), timeout=self.timeout)] = job
            if not pending:
                return
            done, _ = concurrent.futures.wait(pending, return_when="FIRST_COMPLETED")
            for future in done:
                yield pending.pop(future), future

    def _take(self, job: Job, future: Future[Outcome], *, alone: bool) -> None:
        """Books what became of a job."""
        try:
            outcome = future.result()
        except ProcessExpired as error:
            reason = _cause_of_death(error.exitcode)
            if alone:
                self._fail(job, f"its worker {reason}, also when the variant ran alone")
            else:
                self.died.append(job)
                self.watcher.retried(job.variant, reason)
        except concurrent.futures.TimeoutError:
            self._fail(job, f"took longer than {self.timeout:g} s (setting timeout)")
        except AotbuildError as error:  # names the variant
            self._fail(job, str(error), named=True)
        except BrokenProcessPool as error:
            raise CompileError(
                "worker processes end before they take up work; is the machine out of memory? "
                "Build with fewer --jobs"
            ) from error
        except OSError as error:  # the disk is full, for example
            self._fail(job, str(error))
        else:
            self.outcomes[job.scratch] = outcome
            self.watcher.finished(job.variant, outcome.seconds, cached=outcome.cached)

    def _fail(self, job: Job, message: str, *, named: bool = False) -> None:
        name = "" if named else f"{job.variant.arch.name} {job.variant.name}: "
        printed = _excerpt(job.log)
        self.failures[job.scratch] = "\n".join([name + message, *printed])
        self.watcher.failed(job.variant, message)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPool]:
    """Worker processes, ended at once when the block is left by an exception, Ctrl-C included."""
    context = multiprocessing.get_context("spawn")  # fork copies locks that other threads hold
    pool = ProcessPool(max_workers=workers, initializer=compiler.warm, context=context)
    try:
        yield pool
        pool.close()  # type: ignore[no-untyped-call]
    except BaseException:
        pool.stop()  # type: ignore[no-untyped-call]
        raise
    finally:
        pool.join()


def _again(job: Job) -> Job:
    """The job in a fresh scratch folder; the outcome stays under the first one's name."""
    return dataclasses.replace(job, attempt=job.attempt + 1)


def _cause_of_death(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    hint = " (the system may be out of memory; try fewer --jobs)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def _excerpt(log: Path) -> list[str]:
    """The end of what a job printed, indented."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:  # it had not begun to run
        return []
    return [f"    {line}" for line in lines[-_LOG_LINES:]]


def _all_failures(failures: Sequence[str], variants: int) -> str:
    head = f"{len(failures)} of {variants} variants failed, so no pack was written:"
    return "\n".join([head, *(f"  {failure}" for failure in sorted(failures))])
