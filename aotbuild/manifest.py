"""share/aotbuild/runtime.json: what an installed runtime says of itself. The build writes it
(runtime/cmake/AotbuildManifest.cmake)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Where it is in the prefix of a runtime.
MANIFEST = "share/aotbuild/runtime.json"
_TYPES = {"version": str, "abi": int, "cpu": str, "toolkits": list, "contracts": dict}


@dataclass(frozen=True)
class Manifest:
    """What it says, and the `file` that says so.

    `toolkits` are those whose headers the runtime was compared with, as an index names them;
    `contracts` are the operators that it has front ends for, with the version that these call.
    """

    file: str = field(compare=False)
    version: str
    abi: int
    cpu: str
    toolkits: tuple[str, ...]
    contracts: Mapping[str, int]


def read_manifest(file: Path) -> Manifest:
    """Raises OSError, and ValueError, which names the file and what is wrong with it."""
    try:
        table: Any = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(table, dict) or set(table) != set(_TYPES):
        raise ValueError(f"{file}: expected an object of {', '.join(_TYPES)}")
    for name, kind in _TYPES.items():  # more of their shape is checked where the index is written
        if type(table[name]) is not kind:
            raise ValueError(f"{file}: {name} is {table[name]!r}, which is no {kind.__name__}")
    return Manifest(str(file), **{**table, "toolkits": tuple(table["toolkits"])})
