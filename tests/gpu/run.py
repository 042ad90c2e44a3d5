"""The GPU suite in one command, on any machine with a GPU: `python tests/gpu/run.py`.

Needs aotbuild installed (`pip install .`), torch with GPU support, pytest; for the C++ host also
CMake and the vendor's toolkit. Compiles packs for the GPU at hand unless `--packs` names some,
runs tests/gpu and the C++ example over them, times attention against torch, and writes
docs/results/<arch>.{json,md}. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

import aotbuild

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


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
    }  # fmt: skip
    path = options.results / f"{arch}.json"
    record = json.loads(path.read_text()) if path.is_file() else {}
    log = options.work / "cpp_host.log"
    record["cpp_host"] = log.read_text().splitlines()[-12:] if log.is_file() else []
    record["commands"] = results
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(results)
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
