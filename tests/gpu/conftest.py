"""GPU tests: fixtures, and the record of what was measured.

Run them with `python tests/gpu/run.py`, which builds what they need. With `--results DIR` the
session writes `DIR/<arch>.json`: GPU, driver, versions, date, every recorded figure with its
bound, and the number of tests that passed, failed and were skipped.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

import aotbuild

torch = pytest.importorskip("torch")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aotbuild GPU tests")
    group.addoption("--packs", help="folder with packs of the families attention and contract")
    group.addoption("--results", help="folder to write the measured figures to")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = {}


FIGURES: pytest.StashKey[dict[str, dict[str, Any]]] = pytest.StashKey()


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> aotbuild.Library:
    """The library under test: over `--packs` alone, or the default search path."""
    packs = request.config.getoption("--packs")
    if packs is None:
        return aotbuild.Library()
    return aotbuild.Library([packs], paths_only=True)


class Recorder:
    """Keeps the worst value of each figure over the session."""

    def __init__(self, figures: dict[str, dict[str, Any]]) -> None:
        self._figures = figures

    def worst(self, name: str, value: float, bound: float) -> None:
        """Records an error, and asserts that it is within its bound (NaN is not)."""
        entry = self._figures.setdefault(name, {"worst": 0.0, "bound": bound, "cases": 0})
        entry["cases"] += 1
        if not value <= entry["worst"]:
            entry["worst"] = value
        assert value <= bound, f"{name}: {value:.3g}, bound {bound:.3g}"


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Recorder:
    return Recorder(request.config.stash[FIGURES])


@pytest.fixture(scope="session")
def device() -> Any:
    if not torch.cuda.is_available():
        pytest.fail("no GPU: these tests need one (torch.cuda.is_available() is False)")
    return torch.device("cuda", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    folder = session.config.getoption("--results")
    if folder is None or not torch.cuda.is_available():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = {} if reporter is None else reporter.stats
    result = {
        "gpu": torch.cuda.get_device_name(0),
        "arch": aotbuild.device_arch(torch.empty(1, device="cuda")),
        "driver": _driver_version(),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "versions": {
            "aotbuild": aotbuild.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "tests": {kind: len(stats.get(kind, [])) for kind in ("passed", "failed", "skipped")},
        "figures": session.config.stash[FIGURES],
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{result['arch']}.json"
    path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


def _driver_version() -> str:
    if torch.version.hip:
        return f"HIP {torch.version.hip}"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
