"""The trial launch, on the stand-ins for the drivers: what it calls right, and what not."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotbuild.trial import BOUNDS, Trial

# Runs in a process of its own, which opens the stand-ins. In place of a kernel, numpy computes on
# what the capsules say, with one fault or none.
SCRIPT = r"""
import ctypes, dataclasses, json, sys
import numpy as np
from aotbuild import trial
from aotbuild.drivers import DRIVERS
from aotbuild.errors import launch_error

def view(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = trial._Tensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    assert not tensor.strides
    assert (tensor.device_type, tensor.device_id, tensor.lanes) == (DEVICE, 1, 1)
    kind = {(2, 16): np.float16, (2, 32): np.float32, (4, 16): np.uint16}[tensor.code, tensor.bits]
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    buffer = (ctypes.c_char * (size + 8)).from_address(tensor.data)
    return np.frombuffer(buffer, kind, count=int(np.prod(shape))).reshape(shape), buffer, size

def load(array):
    if array.dtype != np.uint16: return array.astype(np.float64)
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

def store(array, values):
    if array.dtype != np.uint16: array[...] = values; return
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    array[...] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

class Kernel:
    def __init__(self, fault): self.native, self.fault = self, fault
    def attention_forward(self, q, k, v, out, lse, scale, window_left, window_right, window_align,
                          allow_tf32, stream):
        if self.fault == "refused": raise launch_error(4, "no image serves this")
        assert (window_right, window_align, allow_tf32, stream) == (0, 1, False, 0)
        out, buffer, size = view(out)
        lse, _, _ = view(lse)
        q, k, v = (load(view(x)[0]) for x in (q, k, v))
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
        i, j = np.mgrid[:q.shape[2], :k.shape[2]]
        shift = 0 if self.fault == "upper left" else k.shape[2] - q.shape[2]
        scores = scale * q @ k.swapaxes(2, 3)
        scores = np.where(j <= i + shift, scores, -np.inf)
        total = np.exp(scores).sum(-1)
        results = np.exp(scores) @ v / total[..., None]
        logs = np.log2(total) if self.fault == "base 2" else np.log(total)
        if self.fault == "last row": results, logs = results[:, :, :-1], logs[:, :, :-1]
        rows = results.shape[2]
        store(out[:, :, :rows], results)
        lse[:, :, :rows] = logs
        if self.fault == "behind": buffer[size] = b"\0"
        if self.fault == "one value": out[0, 1, 2, 3] = 0

found = {}
for kind in DRIVERS:
    DEVICE, driver = kind.device_type, kind()
    for fault in sys.argv[1:]:
        trials = trial.try_attention(driver, 1, Kernel(fault))
        found[f"{kind.vendor} {fault}"] = [dataclasses.asdict(one) for one in trials]
print(json.dumps(found))
"""
FAULTS = {
    "refused": "no image serves this",
    "upper left": "",
    "base 2": "",
    "last row": "256 of 9472 elements of out are NaN or unwritten",
    "behind": "wrote behind the end of an output of (1, 4, 37, 64)",
    "one value": "",
}


@pytest.fixture(scope="module")
def trials(stand_ins: Path) -> dict[str, list[Trial]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "none", *FAULTS],
        env={**os.environ, "LD_LIBRARY_PATH": str(stand_ins)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return {name: [Trial(**one) for one in each] for name, each in found.items()}


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_seen(vendor: str, fault: str, trials: dict[str, list[Trial]]) -> None:
    for trial in trials[f"{vendor} {fault}"]:
        assert not trial.passed, trial
        assert FAULTS[fault] in trial.error
        assert bool(trial.error) == bool(FAULTS[fault])


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_right_results_pass(vendor: str, trials: dict[str, list[Trial]]) -> None:
    found = trials[f"{vendor} none"]
    assert [trial.dtype for trial in found] == list(BOUNDS)
    for trial in found:
        assert trial.passed, trial
        assert 0 < trial.out_error < BOUNDS[trial.dtype] / 2


def test_nan_does_not_pass() -> None:
    assert not Trial("fp16", math.nan, 0.0).passed
    assert not Trial("fp16", 0.0, math.nan).passed
    assert Trial("fp16", 0.0, 0.0).passed
    assert np.isnan(np.frombuffer(b"\xff" * 4, np.float16)).all()  # what outputs are filled with
