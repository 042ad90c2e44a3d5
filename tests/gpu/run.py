"""The GPU suite in one command, on any machine with a GPU: `python tests/gpu/run.py`.

Needs aotbuild installed (`pip install .`), torch with GPU support, pytest; for the C++ host also
CMake and the vendor's toolkit. Compiles packs for the GPU at hand unless `--packs` names some,
runs tests/gpu and the C++ example over them, times attention against torch, and writes
docs/results/<arch>.{json,md}. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import aotbuild

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CPP_BOUNDS = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}


def run(*command: str | Path, log: Path | None = None) -> bool:
    """Runs a command, showing its output, and tells whether it succeeded."""
    print("$", *command, flush=True)
    if log is None:
        return subprocess.run([str(c) for c in command], check=False).returncode == 0
    with log.open("w") as file:
        done = subprocess.run([str(c) for c in command], check=False, stdout=file, stderr=file)
    print(log.read_text(), flush=True)
    return done.returncode == 0


def compile_packs(folder: Path, arch: str) -> bool:
    return run(
        sys.executable, "-m", "aotbuild", "compile", "--arch", arch, "--profile", "standard",
        "--kernels", ROOT / "tests" / "families", "--output", folder,
    )  # fmt: skip


def cpp_host(work: Path, packs: Path, cases: int) -> bool:
    """Builds examples/cpp_host against the installed package and runs it."""
    build = work / "cpp_host"
    vendor = "hip" if torch.version.hip else "cuda"
    return (
        run("cmake", "-S", ROOT / "examples" / "cpp_host", "-B", build,
            f"-Daotbuild_DIR={aotbuild.cmake_dir()}", f"-DCPP_HOST_VENDOR={vendor}",
            "-DCMAKE_BUILD_TYPE=Release")
        and run("cmake", "--build", build)
        and run(build / "cpp_host", packs, str(cases), log=work / "cpp_host.log")
    )  # fmt: skip


def memcheck(packs: Path) -> bool | None:
    """Random calls under compute-sanitizer, each tensor an allocation of its own.

    None where there is no sanitizer.
    """
    if shutil.which("compute-sanitizer") is None:
        return None
    test = HERE / "test_attention.py"
    cases = [f"{test}::test_random_call[{i}-{d}]" for i in range(8) for d in ("fp16", "fp32")]
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    sanitizer = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(*sanitizer, *pytest, "--packs", packs, *cases)
    del os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"]
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packs", type=Path, help="folder with packs (default: compile them)")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--cases", type=int, default=200, help="cases of the C++ host")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    arch = aotbuild.device_arch(torch.empty(1, device="cuda"))
    packs = options.packs or options.work / "packs"
    ok = options.packs is not None or compile_packs(packs, arch)
    if not ok:
        return 1
    results = {
        "pytest": run(sys.executable, "-m", "pytest", HERE, "-q", "-p", "no:cacheprovider",
                      "--packs", packs, "--results", options.results),
        "cpp_host": cpp_host(options.work, packs, options.cases),
        "benchmark": run(sys.executable, ROOT / "benchmarks" / "attention.py", "--packs", packs,
                         "--results", options.results),
        "memcheck": memcheck(packs),
    }  # fmt: skip
    report(options.results, arch, results, options.work / "cpp_host.log")
    return 1 if False in results.values() else 0


def report(folder: Path, arch: str, passed: dict[str, bool | None], log: Path) -> None:
    """Completes the record that the tests left, and writes it out for people."""
    path = folder / f"{arch}.json"
    record = json.loads(path.read_text()) if path.is_file() else {"figures": {}}
    record["commands"] = passed
    if log.is_file():
        record["figures"].update(cpp_figures(log.read_text()))
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    path.with_suffix(".md").write_text(markdown(record))
    print(path.with_suffix(".md").read_text(), passed, sep="\n")


def cpp_figures(text: str) -> dict[str, dict[str, float]]:
    """The worst errors that examples/cpp_host printed: lines of `out-error lse-error dtype ...`."""
    figures: dict[str, dict[str, float]] = {}
    for out, lse, dtype in re.findall(r"^ +(\S+e\S+) +(\S+e\S+)  (\S+) ", text, re.MULTILINE):
        for what, value, bound in (("out", out, CPP_BOUNDS[dtype]), ("lse", lse, 1e-5)):
            figure = figures.setdefault(
                f"cpp_host {dtype}: {what}", {"worst": 0.0, "bound": bound, "cases": 0}
            )
            figure["worst"] = max(figure["worst"], float(value))
            figure["cases"] += 1
    return figures


def markdown(record: dict[str, Any]) -> str:
    """The record as a page."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    counts = ", ".join(f"{count} {kind}" for kind, count in record["tests"].items())
    words = {True: "ok", False: "FAILED", None: "not run"}
    commands = ", ".join(f"{name} {words[ok]}" for name, ok in record["commands"].items())
    rows = [
        f"| {name} | {f['cases']} | {f['worst']:.3g} | {f['bound']:.3g} |"
        for name, f in sorted(record["figures"].items())
    ]
    return "\n".join(
        [
            f"# GPU tests on {record['gpu']} ({record['arch']})",
            "",
            "Written by `tests/gpu/run.py`; do not edit.",
            "",
            f"{record['date']}; driver {record['driver']}; {versions}.",
            f"Tests: {counts}. Commands: {commands}.",
            "",
            "Errors against float64: `out` is ||got - want|| / ||want||, `lse` the largest",
            "|got - want| / max(1, |want|).",
            "",
            "| figure | cases | worst | bound |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
