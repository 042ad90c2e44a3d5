"""Triton as an interpreter: kernels run on CPU tensors, one program after another."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Triton decides when it is imported whether its own library (tl.max ...) is interpreted. The
# variable does not stay: compilers that other tests start must not inherit it.
os.environ["TRITON_INTERPRET"] = "1"
import triton  # noqa: F401

del os.environ["TRITON_INTERPRET"]
sys.path.insert(0, str(Path(__file__).parent))  # for `import harness`


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that a test loads are interpreted."""
    import harness

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with harness.bf16_products():
        yield
