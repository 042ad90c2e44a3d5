"""What several test modules of the Python face share."""

from __future__ import annotations

from typing import Any

import pytest


class Recorder:
    """Takes the place of a library's native part and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.native = self

    def attention_forward(self, **arguments: Any) -> None:
        self.calls.append(arguments)

    def attention_backward(self, **arguments: Any) -> None:
        self.calls.append(arguments)

    def launch(self, *arguments: Any) -> None:
        self.calls.append({"launch": arguments})


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
