"""The command line: arguments and printing, and the only place that exits. What only one command
needs is imported in it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import aotbuild
from aotbuild import config, inspection, report
from aotbuild.errors import AotbuildError, UsageError
from aotbuild.families import load_families
from aotbuild.pack import open_pack
from aotbuild.target import ARCHES, ArchSpec, parse_arch_list

if TYPE_CHECKING:
    from types import FrameType

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Compiles Triton kernels ahead of time into packs, one for each GPU architecture.",
)

_WRONG_STATUS = 2
_SIGINT_STATUS = 130
_SIGTERM_STATUS = 143


class _TerminatedError(BaseException):
    """SIGTERM, as an exception, so that everything is cleaned up on the way out."""


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _TerminatedError


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command and exits: 0 done, 1 the work failed, 2 the command was wrong."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status. Errors are told on the error stream."""
    command = typer.main.get_command(app)
    try:
        status = command.main(arguments, prog_name="aotbuild", standalone_mode=False)
    except AotbuildError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        return _fail(f"{text} Try 'aotbuild --help', or --help after a command.", _WRONG_STATUS)
    except OSError as error:
        return _fail(str(error), 1)
    except _TerminatedError:
        return _fail("terminated", _SIGTERM_STATUS)
    if status == _SIGINT_STATUS:  # typer's answer to Ctrl-C
        return _fail("interrupted", _SIGINT_STATUS)
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status


def _warn(message: str) -> None:
    report.console(sys.stderr).print(f"warning: {message}", style="yellow", soft_wrap=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"aotbuild {aotbuild.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


# ---- Options that several commands have --------------------------------------------------------

_Arches = Annotated[
    list[str] | None,
    typer.Option(
        "--arch", help="GPU arch: gfx950, sm_90, ... A list, or the option again, for several."
    ),
]
_Families = Annotated[
    list[str] | None, typer.Option("--family", help="Kernel family; all if left out.")
]
_CacheDir = Annotated[str | None, typer.Option(help="Folder of the cache.")]
_CacheLimit = Annotated[str | None, typer.Option(help="Size of the cache, as 4GiB.")]
_ConfigFile = Annotated[str | None, typer.Option("--config", help="Settings file (aotbuild.toml).")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _settings(**options: str | list[str] | bool | None) -> config.Settings:
    """The settings of a command, from its options here and from elsewhere."""
    words = {
        name: str(value) if isinstance(value, bool) else value for name, value in options.items()
    }
    return config.load(words, environ=os.environ, folder=Path.cwd())


@app.command("compile")
def compile_packs(
    arch: _Arches = None,
    family: _Families = None,
    profile: Annotated[
        str | None,
        typer.Option(help="smoke (a few general images), standard (default) or full (for tuning)."),
    ] = None,
    output: Annotated[str | None, typer.Option(help="Folder of the packs (images).")] = None,
    jobs: Annotated[str | None, typer.Option(help="Worker processes.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Seconds that a variant may take.")] = None,
    kernels: Annotated[
        list[str] | None, typer.Option(help="Further folder that holds families.")
    ] = None,
    cache: Annotated[
        bool | None, typer.Option("--cache/--no-cache", help="Use the cache of compiled images.")
    ] = None,
    cache_dir: _CacheDir = None,
    cache_limit: _CacheLimit = None,
    config_file: _ConfigFile = None,
) -> None:
    """Compile kernel families into <output>/<arch>/<family>.aotpack. Needs no GPU."""
    specs = parse_arch_list(arch or [])
    settings = _settings(
        family=family,
        profile=profile,
        output=output,
        jobs=jobs,
        timeout=timeout,
        kernels=kernels,
        cache=cache,
        cache_dir=cache_dir,
        cache_limit=cache_limit,
        config=config_file,
    )
    families = load_families(settings.family, settings.kernels)
    _check_compiler()
    for spec in specs:
        _comment(spec)
    from aotbuild.build import build

    arches = [spec.arch for spec in specs]
    with report.watcher(sys.stderr) as watcher:
        result = build(families, arches, settings, f"aotbuild {aotbuild.__version__}", watcher)
    report.print_summary(result, sys.stdout)


@app.command("fetch")
def fetch_packs(
    arch: _Arches = None,
    family: _Families = None,
    to: Annotated[str | None, typer.Option(help="Folder that packs go into.")] = None,
    index: Annotated[
        str | None, typer.Option(help="Index of a release: URL, file or folder.")
    ] = None,
    mirror: Annotated[
        list[str] | None, typer.Option(help="URL or folder to fetch from before the index's.")
    ] = None,
    locked: Annotated[
        str | None, typer.Option(help="Lock file, in place of an index: just the packs in it.")
    ] = None,
    strict_arch: Annotated[
        bool | None,
        typer.Option("--strict-arch/--subset", help="Fail if one arch has no pack, or fetch on."),
    ] = None,
    offline: Annotated[
        bool | None, typer.Option("--offline/--online", help="Keep off the network.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be fetched; fetch nothing.")
    ] = False,
    key: Annotated[
        list[str] | None, typer.Option(help="Public key that may sign an index of the network.")
    ] = None,
    allow_unsigned: Annotated[
        bool | None, typer.Option("--allow-unsigned", help="Take an index without a signature.")
    ] = None,
    cache_dir: _CacheDir = None,
    cache_limit: _CacheLimit = None,
    config_file: _ConfigFile = None,
) -> None:
    """Fetch published packs for GPU archs into a folder that the runtime searches."""
    settings = _settings(
        family=family,
        fetch_to=to,
        index=index,
        mirror=mirror,
        strict_arch=strict_arch,
        offline=offline,
        key=key,
        allow_unsigned=allow_unsigned,
        cache_dir=cache_dir,
        cache_limit=cache_limit,
        config=config_file,
    )
    from aotbuild import fetch

    if settings.allow_unsigned and settings.index.startswith("http"):
        _warn(f"the index {settings.index} is not checked for a signature")
    with (
        report.fetch_watcher(sys.stderr) as watcher,
        contextlib.closing(fetch.downloads(settings, watcher)) as store,
    ):
        plan = fetch.plan(arch or [], settings, store, locked=locked or "")
        report.print_verdicts(plan.verdicts, sys.stdout)
        if dry_run:
            for artifact in plan.wanted:
                print("\n  ".join([artifact.file, *fetch.sources(plan, artifact)]))
            return
        outcome = fetch.carry_out(plan, settings, store, watcher)
    report.print_fetched(outcome, sys.stdout)


def _check_compiler() -> None:
    missing = [name for name in ("triton", "pebble") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"compiling needs {' and '.join(missing)}; install them with: "
            "pip install 'aotbuild[compile]'"
        )


def _comment(spec: ArchSpec) -> None:
    """What someone who names this arch should know."""
    if spec.arch.tier != "stable":
        _warn(f"{spec.arch.name} is {spec.arch.tier}: its images are less tested")
    if str(spec.features):
        _warn(
            f"{spec} names device settings; the pack for {spec.arch.name} serves all of them, "
            "so they make no difference"
        )


@app.command("inspect")
def inspect_pack(
    pack: Annotated[str, typer.Argument(help="A pack file: <arch>/<family>.aotpack.")],
    as_json: _Json = False,
    images: Annotated[bool, typer.Option("--images", help="List every image.")] = False,
) -> None:
    """Show what a pack holds."""
    opened = open_pack(Path(pack))
    if as_json:
        print(json.dumps(inspection.pack_json(opened), indent=2))
    else:
        inspection.print_pack(opened, report.console(sys.stdout), images=images)


@app.command("doctor")
def examine_machine(
    launch: Annotated[
        bool, typer.Option("--launch", help="Run a kernel on every GPU, and check its result.")
    ] = False,
    device: Annotated[
        int | None, typer.Option(help="With --launch: only on the GPU of this number.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Tell what is installed, which pack serves which GPU, and what to do where none does.

    Exits with 0 if every GPU is served and nothing is broken, also where there is no GPU.
    """
    from aotbuild import doctor, doctor_report
    from aotbuild.machine import examine
    from aotbuild.trial import try_devices

    if device is not None and not launch:
        raise UsageError("--device says where to launch; add --launch")
    machine = examine(os.environ)
    if device is not None and device not in {found.number for found in machine.devices}:
        known = ", ".join(found.label for found in machine.devices) or "none"
        raise UsageError(f"--device is {device}; the devices here are: {known}")
    served = [pairing.device for pairing in doctor.pair(machine) if pairing.packs]
    chosen = [found for found in served if launch and device in (None, found.number)]
    tried = try_devices(chosen) if chosen else ()
    diagnosis = doctor.diagnose(machine, tried, launch=launch)
    if as_json:
        print(json.dumps(doctor_report.diagnosis_json(machine, diagnosis), indent=2))
    else:
        doctor_report.print_diagnosis(machine, diagnosis, report.console(sys.stdout))
    if not diagnosis.healthy:
        raise typer.Exit(1)


@app.command("release")
def make_release(
    out: Annotated[str, typer.Option(help="Folder to write; absent, or an earlier release.")],
    serial: Annotated[int, typer.Option(min=1, help="Number of this index; it only grows.")],
    expires: Annotated[
        dt.datetime, typer.Option(formats=["%Y-%m-%d"], help="Last day of the index, UTC.")
    ],
    packs: Annotated[str | None, typer.Option(help="Folder of compiled packs (images).")] = None,
    runtime: Annotated[
        list[str] | None, typer.Option(help="Prefix that a runtime is installed in.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The sdist: aotbuild-<version>.tar.gz.")
    ] = None,
    mirror: Annotated[list[str] | None, typer.Option(help="URL of the folder.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Private key (PEM) that signs.")] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="No signature: for an index that is pinned.")
    ] = False,
    config_file: _ConfigFile = None,
) -> None:
    """Turn packs and built runtimes into the folder that mirrors hold, with its index."""
    from aotbuild import release

    if unsigned == bool(key):
        raise UsageError("name a --key to sign with, or say --unsigned; one of the two")
    settings = _settings(output=packs, config=config_file)
    request = release.Request(
        version=aotbuild.__version__,
        serial=serial,
        expires=expires.replace(hour=23, minute=59, second=59, tzinfo=dt.timezone.utc),
        packs=settings.output,
        runtimes=tuple(map(Path, runtime or ())),
        source=None if source is None else Path(source),
        mirrors=tuple(mirror or ()),
        keys=tuple(map(Path, key or ())),
    )
    index = release.make_release(request, Path(out))
    rows = [(item.file, report.size(item.size), item.sha256) for item in index.artifacts]
    report.console(sys.stdout).print(report.table(("file", ">size", "SHA-256"), rows))


@app.command("new-key")
def make_key(path: Annotated[str, typer.Argument(help="File to write.")]) -> None:
    """Make a key to sign releases with, and print its public part."""
    from aotbuild import release

    print(release.write_key(Path(path)))


@app.command("arches")
def list_arches(
    as_json: _Json = False,
) -> None:
    """List the GPU architectures that packs are built for."""
    if as_json:
        print(json.dumps([dataclasses.asdict(arch) for arch in ARCHES], indent=2))
        return
    rows = [
        (arch.name, arch.vendor, arch.family, arch.warp_size, arch.tier, arch.tuning or "its own")
        for arch in ARCHES
    ]
    headings = ("arch", "driver", "family", ">warp", "tier", "tuned as")
    report.console(sys.stdout).print(report.table(headings, rows))
