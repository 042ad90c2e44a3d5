"""What several test modules share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fetching import TO, Fetch, Told


class Recorder:
    """Takes the place of a library's native part and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.native = self

    def attention_forward(self, **arguments: Any) -> None:
        self.calls.append(arguments)

    def launch(self, *arguments: Any) -> None:
        self.calls.append({"launch": arguments})


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test in an empty folder, without settings from outside."""
    for name in list(os.environ):
        if name.startswith("AOTBUILD_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fetch(own_folder: None, capsys: pytest.CaptureFixture[str]) -> Fetch:
    """Runs `aotbuild fetch` here; into TO unless told otherwise."""
    from aotbuild import cli

    def run(*arguments: str, to: bool = True) -> Told:
        where = ["--to", str(TO)] if to else []
        status = cli.run(["fetch", *where, *arguments])
        return Told(status, *capsys.readouterr())

    return run
