"""Builds with real worker processes and the real compiler: failures first."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aotbuild.build import BuildResult, build
from aotbuild.config import Settings
from aotbuild.errors import CompileError, SpecError, UsageError
from aotbuild.families import load_families
from aotbuild.pack import open_pack, read_code
from aotbuild.plan import Profile, Variant
from aotbuild.target import parse_arch_list

Write = Callable[..., Path]

#: Dies, hangs or fails in the worker, where the kernel's module is imported.
_KERNEL_THAT = "import os, signal, time\n{}\n"
_WRONG_KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 100, "block is too large")
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))
"""


@dataclass
class Events:
    """A watcher that keeps what it is told."""

    begun: list[tuple[int, int]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    cached: int = 0
    failures: list[str] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)

    def started(self, variants: int, workers: int) -> None:
        self.begun.append((variants, workers))

    def finished(self, variant: Variant, seconds: float, *, cached: bool) -> None:
        assert seconds >= 0
        self.done.append(f"{variant.arch.name} {variant.name}")
        self.cached += cached

    def failed(self, variant: Variant, message: str) -> None:
        self.failures.append(message)

    def retried(self, variant: Variant, message: str) -> None:
        self.retries.append(message)


@dataclass(frozen=True)
class Bench:
    """A folder with an output and a cache of its own."""

    folder: Path
    events: Events = field(default_factory=Events)

    def build(
        self,
        kernels: Path,
        arches: str = "gfx942",
        names: tuple[str, ...] = ("tiny",),
        **more: object,
    ) -> BuildResult:
        values: dict[str, Any] = {
            "output": self.folder / "out", "cache_dir": self.folder / "cache", "jobs": 2,
            "timeout": 60.0, **more,
        }  # fmt: skip
        targets = [spec.arch for spec in parse_arch_list([arches])]
        settings = Settings(**values)
        families = load_families(names, [kernels])
        return build(families, targets, settings, "test", self.events)

    def left_behind(self) -> list[Path]:
        """All files and run folders, but for cached images."""
        images = self.folder / "cache" / "images"
        found = [*self.folder.glob("out"), *self.folder.glob("cache/runs/*")]
        return found + [p for p in images.glob("**/*") if p.is_file() and len(p.name) != 64]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_variant_that_does_not_compile_is_named(bench: Bench, write_family: Write) -> None:
    kernels = write_family(kernel=_WRONG_KERNEL)
    write_family("good", arches=("gfx942",))
    with pytest.raises(CompileError) as caught:
        bench.build(kernels, names=("good", "tiny"))
    message = str(caught.value)
    assert message.startswith("2 of 4 variants failed, so no pack was written:")
    for dtype in ("fp16", "fp32"):
        assert f"gfx942 tiny.double/dtype={dtype}/any/BLOCK=128,num_warps=1: " in message
    assert message.count("block is too large") >= 2
    assert len(bench.events.failures) == 2
    assert len(bench.events.done) == 2
    assert bench.left_behind() == []


def test_a_failure_leaves_an_older_pack_as_it_was(bench: Bench, write_family: Write) -> None:
    path = bench.folder / "out" / "gfx942" / "tiny.aotpack"
    bench.build(write_family())
    before = path.read_bytes()
    with pytest.raises(CompileError):
        bench.build(write_family(kernel=_WRONG_KERNEL))
    assert path.read_bytes() == before
    assert [p for p in (bench.folder / "out").rglob("*") if p.is_file()] == [path]


def test_a_variant_that_hangs_is_ended(bench: Bench, write_family: Write) -> None:
    hang = "os.write(1, b'nearly there\\n'); time.sleep(600)"
    kernels = write_family(kernel=_KERNEL_THAT.format(hang), dtypes=("fp16",))
    with pytest.raises(CompileError) as caught:
        bench.build(kernels, timeout=1.5)
    message = str(caught.value)
    assert "gfx942 tiny.double/dtype=fp16/" in message
    assert "took longer than 1.5 s (setting timeout)" in message
    assert "nearly there" in message
    assert bench.events.retries == []
    assert bench.left_behind() == []


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("os._exit(7)", "ended with exit status 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL (the system may be out of"),
        ("os.write(1, b'LLVM ERROR\\n'); os.abort()", "was killed by SIGABRT"),
    ],
)
def test_a_variant_whose_worker_dies_is_tried_once_more(
    end: str, cause: str, bench: Bench, write_family: Write
) -> None:
    kernels = write_family(kernel=_KERNEL_THAT.format(end))
    write_family("good", arches=("gfx942",))
    with pytest.raises(CompileError) as caught:
        bench.build(kernels, names=("tiny", "good"))
    message = str(caught.value)
    assert f"its worker {cause}" in message
    assert "also when the variant ran alone" in message
    assert len(bench.events.retries) == 2
    assert len(bench.events.failures) == 2
    assert len(bench.events.done) == 2
    assert ("LLVM ERROR" in message) == ("LLVM" in end)
    assert bench.left_behind() == []


def test_a_worker_that_dies_once_does_no_harm(
    bench: Bench, write_family: Write, tmp_path: Path
) -> None:
    mark = tmp_path / "died"
    once = (
        f"if not os.path.exists({str(mark)!r}):\n"
        f"    open({str(mark)!r}, 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    plain = (write_family() / "tiny" / "kernel.py").read_text("utf-8")
    result = bench.build(write_family(kernel=_KERNEL_THAT.format(once) + plain))
    assert len(bench.events.retries) >= 1
    assert result.packs[0].images == 2


def test_no_tuning_table(bench: Bench, write_family: Write) -> None:
    with pytest.raises(SpecError, match="no tuning table for gfx950"):
        bench.build(write_family(), "gfx942,gfx950")
    assert bench.events.begun == []
    assert bench.left_behind() == []


def test_an_output_that_is_a_file_is_refused_before_work(bench: Bench, write_family: Write) -> None:
    kernels = write_family()
    (bench.folder / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        bench.build(kernels, output=bench.folder / "file" / "deep" / "er")
    assert bench.events.begun == []


def test_an_output_without_permission_is_refused_before_work(
    bench: Bench, write_family: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = write_family()
    monkeypatch.setattr(os, "access", lambda path, mode: path != bench.folder)  # root may do all
    with pytest.raises(UsageError, match=f"no permission for {bench.folder}"):
        bench.build(kernels)
    assert bench.events.begun == []


def test_packs_and_their_summary(bench: Bench, write_family: Write) -> None:
    result = bench.build(write_family(), "sm_90,gfx942")
    assert [(pack.arch, pack.family) for pack in result.packs] == [
        ("sm_90", "tiny"),
        ("gfx942", "tiny"),
    ]
    assert bench.events.begun == [(4, 2)]
    for summary in result.packs:
        pack = open_pack(summary.path)
        assert summary.path == bench.folder / "out" / summary.arch / "tiny.aotpack"
        assert (pack.arch, pack.family, pack.producer) == (summary.arch, "tiny", "test")
        assert (summary.images, summary.unique_images, summary.cached) == (2, 2, 0)
        assert summary.raw_bytes == sum(len(read_code(pack, image)) for image in pack.images)
        assert summary.packed_bytes == summary.path.stat().st_size
        assert {timing.variant for timing in summary.slowest} == {i.name for i in pack.images}
        assert summary.slowest[0].seconds >= summary.slowest[1].seconds > 0
    assert result.toolchain["triton"]
    assert not list(bench.folder.glob("cache/runs/*"))


def test_bytes_do_not_depend_on_workers_order_or_cache(bench: Bench, write_family: Write) -> None:
    kernels = write_family()

    def packs(**more: Any) -> list[bytes]:
        return [p.path.read_bytes() for p in bench.build(kernels, "gfx942,sm_90", **more).packs]

    cold = packs(jobs=1, cache=False)
    assert not (bench.folder / "cache").exists()
    assert packs(jobs=2) == cold
    assert bench.events.cached == 0
    assert packs(jobs=1) == cold
    assert bench.events.cached == 4


def test_damaged_and_outdated_cache_entries_are_not_used(bench: Bench, write_family: Write) -> None:
    kernels = write_family()
    first = bench.build(kernels).packs[0].path.read_bytes()
    (one, _) = [p for p in (bench.folder / "cache" / "images").rglob("*") if p.is_file()]
    one.write_bytes(one.read_bytes()[:100])
    again = bench.build(kernels).packs[0]
    assert (again.cached, again.path.read_bytes()) == (1, first)
    with (kernels / "tiny" / "kernel.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert bench.build(kernels).packs[0].cached == 0


def test_the_cache_is_cut_to_its_limit(bench: Bench, write_family: Write) -> None:
    bench.build(write_family(), cache_limit=0)
    assert not [p for p in (bench.folder / "cache" / "images").rglob("*") if p.is_file()]


def test_a_cache_that_cannot_be_used_is_refused_before_work(
    bench: Bench, write_family: Write
) -> None:
    kernels = write_family()
    (bench.folder / "cache").touch()
    with pytest.raises(UsageError, match="build with --no-cache"):
        bench.build(kernels)
    assert bench.build(kernels, cache=False).packs[0].images == 2


def test_a_full_build_holds_every_candidate(bench: Bench, write_family: Write) -> None:
    result = bench.build(write_family(), profile=Profile.FULL)
    assert result.packs[0].images == 4
    names = [image.name for image in open_pack(result.packs[0].path).images]
    assert sum("BLOCK=64" in name for name in names) == 2
