"""What a terminal shows: the progress of a build or a fetch, and what came of it.

Progress goes to the error stream, results to the output stream. Neither gets control codes
unless it is a terminal, nor colours when NO_COLOR is set.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

    from aotbuild.build import BuildResult
    from aotbuild.fetch import Outcome
    from aotbuild.plan import Variant
    from aotbuild.select import Verdict

#: Where the output is no terminal, lines are as long as their content.
_UNBOUNDED = 100_000


def console(stream: TextIO) -> Console:
    """A console that prints text as it is: no markup, emoji codes or guessed colours."""
    width = None if stream.isatty() else _UNBOUNDED
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def size(count: float) -> str:
    """Bytes for people: 812 B, 1.4 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def duration(seconds: float) -> str:
    """Seconds for people: 0.4 s, 75 s, 12 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table without rules. Columns whose heading starts with ">" are flush right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(
            heading.lstrip(">"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        made.add_row(*map(str, row))
    return made


class LineWatcher:
    """Tells a build's progress in lines, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _step(self) -> str:
        self._done += 1
        return f"[{self._done}/{self._total}]"

    def started(self, variants: int, workers: int) -> None:
        self._total = variants
        self._print(_begin(variants, workers))

    def finished(self, variant: Variant, seconds: float, *, cached: bool) -> None:
        how = "cached" if cached else duration(seconds)
        self._print(f"{self._step()} {variant.arch.name} {variant.name} ({how})")

    def failed(self, variant: Variant, message: str) -> None:
        self._print(f"{self._step()} {_failed(variant, message)}")

    def retried(self, variant: Variant, message: str) -> None:
        self._print(_retried(variant, message))


class BarWatcher:
    """Tells a build's progress in a bar with the time left; failures stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self._failures = 0
        self._task = TaskID(0)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[failures]}", style="bold red"),
            console=console(stream),
            transient=True,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, variants: int, workers: int) -> None:
        self._progress.console.print(_begin(variants, workers))
        self._task = self._progress.add_task("compiling", total=variants, failures="")

    def finished(self, variant: Variant, seconds: float, *, cached: bool) -> None:
        self._progress.advance(self._task)

    def failed(self, variant: Variant, message: str) -> None:
        self._failures += 1
        self._progress.console.print(_failed(variant, message), style="red")
        self._progress.update(self._task, advance=1, failures=f"{self._failures} failed")

    def retried(self, variant: Variant, message: str) -> None:
        self._progress.console.print(_retried(variant, message), style="yellow")


def watcher(stream: TextIO) -> LineWatcher | BarWatcher:
    """The one that fits the stream."""
    return BarWatcher(stream) if console(stream).is_terminal else LineWatcher(stream)


def _begin(variants: int, workers: int) -> str:
    return f"{variants} variants, {workers} worker{'' if workers == 1 else 's'}"


def _failed(variant: Variant, message: str) -> str:
    """One line; the whole message comes at the end."""
    name = f"{variant.arch.name} {variant.name}"
    first = message.removeprefix(f"{name}: ").partition("\n")[0]
    return f"FAILED {name}: {first}"


def _retried(variant: Variant, message: str) -> str:
    return f"worker {message}, will retry alone: {variant.arch.name} {variant.name}"


def print_summary(result: BuildResult, stream: TextIO = sys.stdout) -> None:
    """What a build wrote, pack by pack."""
    out = console(stream)
    rows = [
        (
            pack.arch, pack.family, pack.images, pack.unique_images, pack.cached,
            size(pack.raw_bytes), size(pack.packed_bytes), duration(pack.seconds),
        )
        for pack in result.packs
    ]  # fmt: skip
    headings = ("arch", "family", ">images", ">unique", ">cached", ">raw", ">packed", ">time")
    out.print(table(headings, rows))
    slow = [(duration(t.seconds), p.arch, t.variant) for p in result.packs for t in p.slowest]
    if slow:
        out.print()
        out.print(table((">slowest", "arch", "variant"), slow))
    out.print()
    for pack in result.packs:
        out.print(str(pack.path), soft_wrap=True)
    compilers = ", ".join(f"{name} {version}" for name, version in sorted(result.toolchain.items()))
    out.print(f"done in {duration(result.seconds)} with {compilers}")


class FetchLines:
    """Tells downloads in lines, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begun(self, file: str, size_: int, position: int) -> None:
        self.noted(_begin_file(file, size_, position))

    def moved(self, file: str, position: int) -> None:
        pass

    def noted(self, message: str) -> None:
        print(message, file=self._stream, flush=True)

    def ended(self, file: str, seconds: float) -> None:
        self.noted(f"{file}: verified ({duration(seconds)})")


class FetchBar:
    """Tells downloads in a bar with the speed and the time left; notes stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console(stream),
            transient=True,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begun(self, file: str, size_: int, position: int) -> None:
        self._tasks[file] = self._progress.add_task(file, total=size_, completed=position)

    def moved(self, file: str, position: int) -> None:
        self._progress.update(self._tasks[file], completed=position)

    def noted(self, message: str) -> None:
        self._progress.console.print(message, style="yellow", soft_wrap=True)

    def ended(self, file: str, seconds: float) -> None:
        self._progress.remove_task(self._tasks.pop(file))


def fetch_watcher(stream: TextIO) -> FetchLines | FetchBar:
    """The one that fits the stream."""
    return FetchBar(stream) if console(stream).is_terminal else FetchLines(stream)


def _begin_file(file: str, count: int, position: int) -> str:
    resumed = f", {size(position)} of it here already" if position else ""
    return f"{file}: {size(count)}{resumed}"


def print_verdicts(verdicts: Sequence[Verdict], stream: TextIO = sys.stdout) -> None:
    """What comes of every word of an arch list."""
    rows = [
        (
            verdict.word,
            verdict.arch or "-",
            ", ".join(item.family for item in verdict.artifacts) or "skipped",
            size(sum(item.size for item in verdict.artifacts)) if verdict.artifacts else "-",
            verdict.note,
        )
        for verdict in verdicts
    ]
    console(stream).print(table(("named", "arch", "packs", ">size", "note"), rows))


def print_fetched(outcome: Outcome, stream: TextIO = sys.stdout) -> None:
    """What a fetch changed, and where."""
    out = console(stream)
    for item in outcome.removed:
        out.print(f"removed {item.arch}/{item.family}.aotpack: of another version", soft_wrap=True)
    fetched, present = len(outcome.fetched), len(outcome.present)
    total = size(sum(item.size for item in outcome.fetched))
    what = f"fetched {fetched} pack{'' if fetched == 1 else 's'} ({total})" if fetched else ""
    there = f"{present} up to date" if present else ""
    out.print(f"{', '.join(filter(None, (what, there)))} in {outcome.folder}", soft_wrap=True)
