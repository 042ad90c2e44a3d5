"""`aotbuild doctor`: its verdicts from facts alone, and the command on machines made up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import aotbuild
from aotbuild import cli
from aotbuild.doctor import diagnose
from aotbuild.families import load_families
from aotbuild.machine import (
    Compiler,
    Device,
    DriverState,
    Folder,
    FoundPack,
    Machine,
    Runtime,
)
from aotbuild.manifest import Manifest
from aotbuild.trial import Trial, Tried

DATA = Path(__file__).parents[1] / "data"
FILE = "/usr/lib/libaotbuild.so.0"
MANIFEST = Manifest(
    "/usr/share/aotbuild/runtime.json", "0.1.0", 0, "x86_64", (), {"attention.forward": 1}
)
GPU = Device("hip", 0, "gfx942")
PACK = FoundPack(
    "/p/gfx942/attention.aotpack", "gfx942", "attention", "aotbuild 0.1.0", "standard", "stable",
    40, {"attention.forward": 1},
)  # fmt: skip
HOME = Folder("/home/u/images", "home directory", exists=True, packs=(PACK,))
HEALTHY = Machine(
    aotbuild="0.1.0",
    python="3.12.0",
    runtime=Runtime(FILE, "0.1.0", 0, MANIFEST),
    compiler=Compiler("", "3.9.0"),
    toolkits=(),
    drivers=(DriverState("cuda", missing=True, error="none"), DriverState("hip", devices=1)),
    devices=(GPU,),
    search_path=(HOME,),
)
NO_GPU = replace(
    HEALTHY,
    devices=(),
    drivers=tuple(DriverState(v, missing=True, error="none found") for v in ("cuda", "hip")),
)
GOOD = tuple(Trial(dtype, 1e-6, 1e-7) for dtype in ("fp16", "bf16", "fp32"))


def with_packs(*packs: FoundPack, **changes: Any) -> Machine:
    return replace(HEALTHY, search_path=(replace(HOME, packs=packs, **changes),))


# ---- Verdicts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "what", "remedy"),
    [
        (
            replace(HEALTHY, runtime=Runtime(error="/a/_native.so: no libaotbuild"), devices=()),
            "the runtime cannot be used: /a/_native.so: no libaotbuild",
            "--force-reinstall aotbuild",
        ),
        (
            replace(HEALTHY, runtime=replace(HEALTHY.runtime, version="0.2.0")),
            f"aotbuild is 0.1.0, its runtime {FILE} is 0.2.0",
            "--force-reinstall",
        ),
        (
            replace(HEALTHY, runtime=replace(HEALTHY.runtime, abi=1)),
            "runtime.json is of version 0.1.0, ABI 0; /usr/lib/libaotbuild.so.0 is 0.1.0, ABI 1",
            "--force-reinstall",
        ),
        (with_packs(), "no usable pack for gfx942 (hip:0)", "aotbuild fetch --arch gfx942"),
        (with_packs(), "", "pip install 'aotbuild[gfx942]'"),
        (with_packs(), "", "compile --arch gfx942 --profile smoke --output /home/u/images"),
        (
            with_packs(replace(PACK, error="SHA-256 is wrong")),
            "attention.aotpack cannot be used: SHA-256 is wrong",
            "remove it",
        ),
        (
            with_packs(replace(PACK, contracts={"attention.forward": 2})),
            "attention.forward has contract 2, the runtime calls contract 1",
            "fetch --arch gfx942",
        ),
        (
            with_packs(replace(PACK, error="cut off"), PACK),
            "no usable pack for gfx942",  # the runtime stops at the first, and so does the doctor
            "fetch",
        ),
        (
            with_packs(PACK, error="[Errno 13] denied"),
            "cannot search /home/u/images: [Errno 13] denied",
            "take it off the path (home directory)",
        ),
        (
            replace(HEALTHY, devices=(Device("cuda", 0, "sm_75"), Device("cuda", 1, "sm_75"))),
            "aotbuild builds no images for sm_75 (cuda:0, cuda:1)",
            "CUDA_VISIBLE_DEVICES; there are images for gfx90a",
        ),
        (
            replace(HEALTHY, devices=(replace(GPU, arch="", error="hipSetDevice failed"),)),
            "hip:0: hipSetDevice failed",
            "install the ROCm runtime",
        ),
        (
            replace(NO_GPU, drivers=(DriverState("cuda", file="/l/libcuda.so.1", error="old"),)),
            "NVIDIA driver: old (/l/libcuda.so.1)",
            "525 or newer",
        ),
        (
            replace(
                NO_GPU,
                drivers=(DriverState("hip", node="/dev/kfd", missing=True, error="none"),),
            ),
            "AMD driver: none; but there is /dev/kfd",
            "LD_LIBRARY_PATH",
        ),
    ],
)
def test_problems_come_with_their_remedy(machine: Machine, what: str, remedy: str) -> None:
    diagnosis = diagnose(machine)
    assert not diagnosis.healthy
    assert "problem" in diagnosis.verdict
    assert any(what in finding.what for finding in diagnosis.problems), diagnosis.problems
    assert any(remedy in line for finding in diagnosis.problems for line in finding.remedies)


def test_a_served_device_is_healthy() -> None:
    diagnosis = diagnose(HEALTHY, (Tried(GPU, GOOD),), launch=True)
    assert diagnosis.healthy
    assert diagnosis.verdict == "1 GPU, served"
    assert [pairing.packs for pairing in diagnosis.pairings] == [(PACK,)]
    assert diagnosis.notes == ()


def test_every_device_counts() -> None:
    other = Device("cuda", 0, "sm_90")
    diagnosis = diagnose(replace(HEALTHY, devices=(GPU, other)))
    assert [finding.what for finding in diagnosis.problems] == ["no usable pack for sm_90 (cuda:0)"]
    assert diagnosis.verdict == "2 GPUs; 1 problem"


def test_the_first_pack_of_a_family_serves() -> None:
    first = replace(PACK, file="/first/gfx942/attention.aotpack")
    other = replace(PACK, family="gemm", contracts={"gemm.matmul": 7})
    (pairing,) = diagnose(with_packs(first, PACK, other)).pairings
    assert pairing.packs == (first, other)  # of gemm the runtime knows no contract


def test_without_a_gpu_packs_decide() -> None:
    diagnosis = diagnose(NO_GPU)
    assert diagnosis.healthy
    assert diagnosis.verdict == "no GPU here; the runtime loads, 1 pack is sound"
    empty = diagnose(replace(NO_GPU, search_path=()))
    assert empty.verdict == "no GPU here; the runtime loads, no pack found"
    broken = replace(HOME, packs=(replace(PACK, error="cut off"),))
    assert not diagnose(replace(NO_GPU, search_path=(broken,))).healthy


def test_a_launch_needs_a_gpu() -> None:
    diagnosis = diagnose(NO_GPU, launch=True)
    assert [finding.what for finding in diagnosis.problems] == [
        "nothing was launched, since there is no GPU here"
    ]


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (Trial("fp16", 1e-2, 1e-7), "hip:0, attention in fp16: wrong results: relative error 0.01"),
        (Trial("fp32", 1e-7, 1e-2), "wrong results"),
        (Trial("bf16"), "wrong results: relative error nan of out"),
        (Trial("bf16", 0.0, 0.0, error="hipErrorLaunchFailure (719)"), "LaunchFailure (719)"),
    ],
)
def test_a_launch_that_goes_wrong_is_a_problem(trial: Trial, message: str) -> None:
    diagnosis = diagnose(HEALTHY, (Tried(GPU, (*GOOD, trial)),), launch=True)
    (problem,) = diagnosis.problems
    assert message in problem.what


def test_a_processors_own_gpu_beside_the_real_one_is_not_missed() -> None:
    drivers = (DriverState("cuda", devices=1), DriverState("hip", node="/dev/kfd", missing=True))
    machine = with_packs(replace(PACK, arch="sm_90"))
    assert diagnose(
        replace(machine, devices=(Device("cuda", 0, "sm_90"),), drivers=drivers)
    ).healthy


def test_notes_do_not_fail() -> None:
    machine = replace(
        HEALTHY,
        runtime=replace(HEALTHY.runtime, manifest=None),
        compiler=Compiler("3.4.0", "3.9.0"),
        search_path=(Folder("/gone", "AOTBUILD_IMAGE_PATH"), Folder("/x", "image wheel"), HOME),
    )
    diagnosis = diagnose(machine)
    assert diagnosis.healthy
    notes = [finding.what for finding in diagnosis.notes]
    assert len(notes) == 3
    assert "contracts of packs were not compared" in notes[0]
    assert notes[1:] == [
        "triton is 3.4.0; compiling packs needs 3.9.0",
        "/gone (AOTBUILD_IMAGE_PATH) does not exist",
    ]


# ---- The command ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    status: int
    report: dict[str, Any]
    error: str


@pytest.fixture
def doctor(stand_ins: Path) -> Callable[..., Done]:
    """Runs the command with no more than the given environment, on a machine whose drivers, the
    stand-ins, have no device unless told."""

    def run(*options: str, package: Path | None = None, **environment: Path | str | None) -> Done:
        env: dict[str, Path | str | None] = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, [*([package] if package else []), *sys.path])),
            "LD_LIBRARY_PATH": stand_ins, "FAKE_CUDA_INIT": "100", "FAKE_HIP_COUNT": "100",
            **environment,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "aotbuild", "doctor", "--json", *options],
            env={name: str(value) for name, value in env.items() if value is not None},
            check=False,
            capture_output=True,
            text=True,
        )
        return Done(done.returncode, json.loads(done.stdout or "{}"), done.stderr)

    return run


TWO_OF_EACH = {"FAKE_CUDA_INIT": None, "FAKE_HIP_COUNT": None}


def whats(done: Done, of: str = "problems") -> str:
    return "\n".join(finding["what"] for finding in done.report[of])


Write = Callable[..., Path]
Doctor = Callable[..., Done]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "0"], "--device says where to launch; add --launch"),
        (["--launch", "--device", "7"], "--device is 7; the devices here are: "),
        (["--lunch"], "No such option"),
    ],
)
def test_wrong_commands(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("lacking", ["_native*", "lib"])
def test_a_native_module_or_library_that_is_missing(
    doctor: Doctor, lacking: str, tmp_path: Path
) -> None:
    package = tmp_path / "aotbuild"
    shutil.copytree(
        Path(aotbuild.__file__).parent, package, ignore=shutil.ignore_patterns(lacking, "kernels")
    )
    done = doctor(package=tmp_path)
    assert done.status == 1
    missing = "holds no _native*.so" if lacking == "_native*" else "libaotbuild.so.0: cannot open"
    assert f"the runtime cannot be used: {package}" in whats(done)
    assert missing in whats(done)


def test_bad_packs_and_folders(doctor: Doctor, tmp_path: Path) -> None:
    for folder in ("corrupt/gfx942", "moved/gfx950"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(
        DATA / "bad_pack_corrupt_blob_bit.aotpack", tmp_path / "corrupt/gfx942/vector.aotpack"
    )
    shutil.copy(DATA / "good.aotpack", tmp_path / "moved/gfx950/vector.aotpack")
    (tmp_path / "loop").symlink_to("loop")
    path = ":".join(str(tmp_path / name) for name in ("corrupt", "moved", "loop", "absent"))
    done = doctor(AOTBUILD_IMAGE_PATH=path)
    assert done.status == 1
    problems = whats(done).splitlines()
    assert len(problems) == 3
    assert problems[0].startswith(f"{tmp_path}/corrupt/gfx942/vector.aotpack cannot be used: ")
    assert "it holds gfx942/vector, its place says gfx950/vector" in problems[1]
    assert problems[2].startswith(f"cannot search {tmp_path}/loop: ")
    assert f"{tmp_path}/absent (AOTBUILD_IMAGE_PATH) does not exist" in whats(done, "notes")


def test_sound_packs_without_a_gpu(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "aotbuild/images/gfx942").mkdir(parents=True)
    shutil.copy(DATA / "good.aotpack", tmp_path / "aotbuild/images/gfx942/vector.aotpack")
    done = doctor(XDG_DATA_HOME=tmp_path)
    assert (done.status, done.error) == (0, "")
    assert done.report["verdict"] == "no GPU here; the runtime loads, 1 pack is sound"
    last = done.report["search_path"][-1]
    assert (last["origin"], last["packs"][0]["images"]) == ("XDG_DATA_HOME", 3)
    assert done.report["runtime"]["version"] == aotbuild.__version__
    launched = doctor("--launch", XDG_DATA_HOME=tmp_path)
    assert launched.status == 1
    assert "nothing was launched" in whats(launched)


def test_devices_without_packs(doctor: Doctor, tmp_path: Path) -> None:
    done = doctor(
        FAKE_CUDA_CAPABILITY="75", FAKE_HIP_ARCH="gfx950:xnack-", HOME=tmp_path, **TWO_OF_EACH
    )  # fmt: skip
    assert done.status == 1
    assert whats(done).splitlines() == [
        "aotbuild builds no images for sm_75 (cuda:0, cuda:1)",
        "no usable pack for gfx950 (hip:0, hip:1)",
    ]
    assert f"--output {tmp_path}/.local/share/aotbuild/images" in str(done.report["problems"])


def test_a_driver_that_fails_and_one_without_devices(doctor: Doctor, stand_ins: Path) -> None:
    done = doctor(FAKE_CUDA_INIT="999")
    assert done.status == 1
    failed = f"NVIDIA driver: cuInit failed: CUDA_ERROR_FAKE (999) ({stand_ins}/libcuda.so.1)"
    assert whats(done) == failed
    idle = doctor()
    assert idle.status == 0
    assert idle.report["verdict"].startswith("no GPU here")


def test_a_driver_that_is_there_and_cannot_be_loaded(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"not a library")
    done = doctor(LD_LIBRARY_PATH=tmp_path)
    assert done.status == 1
    assert "NVIDIA driver: " in whats(done)
    assert "libcuda.so.1: file too short" in whats(done)


def test_a_pack_of_another_contract(
    doctor: Doctor, tmp_path: Path, write_hollow_pack: Write
) -> None:
    file = write_hollow_pack(tmp_path, "gfx942", contract=2)
    done = doctor(AOTBUILD_IMAGE_PATH=tmp_path, FAKE_HIP_COUNT=None)
    assert done.status == 1
    (family,) = load_families(["attention"], ())
    misfit = ", ".join(
        f"attention.{operator.name} has contract 2, the runtime calls contract 1"
        for operator in family.family.operators
    )
    assert whats(done).splitlines() == [
        f"{file} (aotbuild {aotbuild.__version__}): {misfit}",
        "no usable pack for gfx942 (hip:0, hip:1)",
    ]


def test_devices_with_packs(doctor: Doctor, tmp_path: Path, write_hollow_pack: Write) -> None:
    files = [str(write_hollow_pack(tmp_path, arch)) for arch in ("sm_90", "gfx942")]
    environment = {"AOTBUILD_IMAGE_PATH": tmp_path, **TWO_OF_EACH}
    done = doctor(**environment)
    assert (done.status, done.error) == (0, "")
    assert done.report["verdict"] == "4 GPUs, served"
    assert {served["device"]: served["packs"] for served in done.report["served"]} == {
        "cuda:0": files[:1], "cuda:1": files[:1], "hip:0": files[1:], "hip:1": files[1:],
    }  # fmt: skip
    assert [device["name"] for device in done.report["devices"]] == ["", "", "Fake 90", "Fake 90"]
    assert [d["version"] for d in done.report["drivers"]] == ["CUDA 12.4", "HIP 6.3"]

    # The stand-ins take a launch and run nothing, as a broken image might.
    launched = doctor("--launch", "--device", "1", **environment)
    assert launched.status == 1
    assert len(launched.report["launches"]) == 6
    assert not any(launch["passed"] for launch in launched.report["launches"])
    assert "cuda:1, attention in fp16: 9472 of 9472 elements of out are NaN" in whats(launched)


def test_what_people_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gfx942").mkdir()
    shutil.copy(DATA / "good.aotpack", tmp_path / "gfx942/vector.aotpack")
    (tmp_path / "gfx942/broken.aotpack").write_bytes(b"")
    monkeypatch.setenv("AOTBUILD_IMAGE_PATH", str(tmp_path))
    assert cli.run(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert f"{tmp_path} (AOTBUILD_IMAGE_PATH)\n" in out
    assert "  gfx942/broken: cannot be used, see below\n" in out
    assert "  gfx942/vector: 3 images, unknown, experimental, contract vector.scale 1" in out
    assert f"\nproblems\n- {tmp_path}/gfx942/broken.aotpack cannot be used: " in out
    assert "\n    aotbuild fetch --arch gfx942\n" in out
    assert "problem" in out.splitlines()[-1]
