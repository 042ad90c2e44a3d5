"""Facts about a machine, found in folders made for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotbuild.machine import Toolkit, examine, find_toolkits, look_into, manifest_of
from aotbuild.manifest import Manifest

CUDA = "#ifndef X\n#define CUDA_VERSION {}\n"
HIP = "#define HIP_VERSION_MAJOR {}\n#define HIP_VERSION_MINOR {}\n#define HIP_VERSION_PATCH 7\n"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def test_no_toolkit(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda/include").mkdir(parents=True)
    assert find_toolkits({"CUDA_HOME": str(tmp_path / "none"), "ROCM_PATH": ""}, tmp_path) == ()


def test_toolkits_are_listed_once_and_those_of_variables_first(tmp_path: Path) -> None:
    write(tmp_path / "usr/local/cuda-12.4/include/cuda.h", CUDA.format(12040))
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.4")
    write(tmp_path / "own/include/cuda.h", CUDA.format(13000))
    write(tmp_path / "opt/rocm-6.4.1/include/hip/hip_version.h", HIP.format(6, 4))
    write(tmp_path / "usr/include/hip/hip_version.h", "nothing that is known")
    assert find_toolkits({"CUDA_HOME": str(tmp_path / "own")}, tmp_path) == (
        Toolkit("CUDA", "13.0", str(tmp_path / "own")),
        Toolkit("CUDA", "12.4", str(tmp_path / "usr/local/cuda")),
        Toolkit("ROCm", "6.4", str(tmp_path / "opt/rocm-6.4.1")),
        Toolkit("ROCm", "unknown", str(tmp_path / "usr")),
    )


@pytest.mark.parametrize("lib", ["lib", "lib64", "lib/x86_64-linux-gnu"])
def test_a_manifest_lies_in_the_prefix(lib: str, tmp_path: Path) -> None:
    library = tmp_path / lib / "libaotbuild.so.0"
    assert manifest_of(library) is None
    data = {"version": "0.1.0", "abi": 0, "cpu": "x86_64", "toolkits": ["cuda-13"]}
    file = tmp_path / "share/aotbuild/runtime.json"
    write(file, json.dumps({**data, "contracts": {"attention.forward": 1}}))
    expected = Manifest(str(file), "0.1.0", 0, "x86_64", ("cuda-13",), {"attention.forward": 1})
    found = manifest_of(library)
    assert found == expected
    assert found.file == str(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "toolkits": 2, "contracts": 3}'])
def test_a_damaged_manifest_is_an_error_of_the_runtime(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "share/aotbuild/runtime.json", text)
    library = str(tmp_path / "lib/libaotbuild.so.0")
    monkeypatch.setattr("aotbuild._native.library_file", lambda: library)
    runtime = examine({}, tmp_path).runtime
    assert runtime.error.startswith("its manifest is damaged: ")
    assert runtime.file == library


@pytest.mark.parametrize(
    ("vendor", "file", "text", "version"),
    [
        ("cuda", "proc/driver/nvidia/version",
         "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15", "570.86.15"),
        ("hip", "sys/module/amdgpu/version", "6.10.5\n", "6.10.5"),
        ("hip", "sys/module/amdgpu/version", "", ""),
        ("hip", "dev/kfd", "", ""),
    ],
)  # fmt: skip
def test_the_kernels_part_of_a_driver(
    vendor: str, file: str, text: str, version: str, tmp_path: Path
) -> None:
    write(tmp_path / file, text)
    states = {state.vendor: state for state in examine({}, tmp_path).drivers}
    assert list(states) == ["cuda", "hip"]
    state = next(state for name, state in states.items() if name == vendor)
    assert state.kernel == version
    assert state.node == (str(tmp_path / file) if file.startswith("dev") else "")


def test_files_that_are_no_packs_are_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "gfx942/notes.txt", "")
    write(tmp_path / "index.json", "")
    folder = look_into(str(tmp_path), "set by API")
    assert (folder.exists, folder.packs, folder.error) == (True, (), "")


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "images", "")
    folder = look_into(str(tmp_path / "images"), "AOTBUILD_IMAGE_PATH")
    assert folder.error == f"{tmp_path}/images: Not a directory"
    assert not look_into(str(tmp_path / "none"), "AOTBUILD_IMAGE_PATH").exists
