"""What `aotbuild doctor` tells: as JSON with a stable layout, and for people."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from aotbuild.report import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from aotbuild.doctor import Diagnosis, Finding
    from aotbuild.machine import Folder, Machine


def diagnosis_json(machine: Machine, diagnosis: Diagnosis) -> dict[str, Any]:
    """Everything. Keys are only ever added."""
    return {
        "healthy": diagnosis.healthy,
        "verdict": diagnosis.verdict,
        "problems": [dataclasses.asdict(finding) for finding in diagnosis.problems],
        "notes": [dataclasses.asdict(finding) for finding in diagnosis.notes],
        "served": [
            {"device": pairing.device.label, "packs": [pack.file for pack in pairing.packs]}
            for pairing in diagnosis.pairings
        ],
        "launches": [
            {
                "device": tried.device.label,
                "dtype": trial.dtype,
                "passed": trial.passed,
                "out_error": _number(trial.out_error),
                "lse_error": _number(trial.lse_error),
                "error": trial.error,
            }
            for tried in diagnosis.tried
            for trial in tried.trials
        ],
        **dataclasses.asdict(machine),
    }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def print_diagnosis(machine: Machine, diagnosis: Diagnosis, out: Console) -> None:
    """The facts, then what is served, then what is wrong and what to do; the verdict comes last."""
    _print_facts(machine, out)
    _section(out, "search path, the first pack of a family wins")
    for folder in machine.search_path:
        _print_folder(folder, out)
    if machine.devices:
        _print_devices(diagnosis, out)
    for title, findings in (("notes", diagnosis.notes), ("problems", diagnosis.problems)):
        if findings:
            _section(out, title)
            _print_findings(findings, out)
    out.print()
    out.print(diagnosis.verdict, soft_wrap=True, style="green" if diagnosis.healthy else "red")


def _section(out: Console, title: str) -> None:
    out.print()
    out.print(title, style="bold")


def _print_facts(machine: Machine, out: Console) -> None:
    runtime, compiler = machine.runtime, machine.compiler
    triton = (
        f"triton {compiler.version}" if compiler.version else "none, and only compiling needs one"
    )
    lines = [
        ("aotbuild", machine.aotbuild),
        ("python", machine.python),
        (
            "runtime",
            f"{runtime.version}, ABI {runtime.abi}, {runtime.file}" if runtime.version else "none",
        ),
        ("compiler", triton),
        *(("toolkit", f"{kit.name} {kit.version}, {kit.folder}") for kit in machine.toolkits),
    ]
    for state in machine.drivers:
        kernel = f", kernel {state.kernel}" if state.kernel else ""
        text = state.error if state.error else f"{state.version}, {state.file}"
        lines.append((f"{state.vendor} driver", text + kernel))
    for name, text in lines:
        out.print(f"{name:<13}{text}", soft_wrap=True)


def _print_folder(folder: Folder, out: Console) -> None:
    state = folder.error or ("" if folder.exists else "does not exist")
    out.print(f"{folder.folder} ({folder.origin}){': ' if state else ''}{state}", soft_wrap=True)
    for pack in folder.packs:
        about = pack.error and "cannot be used, see below"
        if not about:
            contracts = ", ".join(f"{name} {number}" for name, number in pack.contracts.items())
            about = (
                f"{pack.images} images, {pack.profile}, {pack.tier}, contract {contracts}, "
                f"made by {pack.producer}"
            )
        out.print(f"  {pack.arch}/{pack.family}: {about}", soft_wrap=True)


def _print_devices(diagnosis: Diagnosis, out: Console) -> None:
    _section(out, "devices")
    rows = [
        (
            pairing.device.label, pairing.device.arch or "unknown", pairing.device.name,
            ", ".join(pack.file for pack in pairing.packs) or "nothing",
        )
        for pairing in diagnosis.pairings
    ]  # fmt: skip
    out.print(table(("device", "arch", "name", "served by"), rows))
    launches = [
        (
            tried.device.label, trial.dtype, "right" if trial.passed else "WRONG",
            f"{trial.out_error:.1e}", f"{trial.lse_error:.1e}",
        )
        for tried in diagnosis.tried
        for trial in tried.trials
    ]  # fmt: skip
    if launches:
        out.print()
        out.print(table(("launched on", "dtype", "result", ">out error", ">lse error"), launches))


def _print_findings(findings: Iterable[Finding], out: Console) -> None:
    for finding in findings:
        out.print(f"- {finding.what}", soft_wrap=True)
        for remedy in finding.remedies:
            out.print(f"    {remedy}", soft_wrap=True)
