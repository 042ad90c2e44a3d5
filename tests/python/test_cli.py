"""The command line: exit codes, messages, and what goes to which stream."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import aotbuild
from aotbuild import cli
from aotbuild.target import ARCHES

Write = Callable[..., Path]

_HANG = "import time\ntime.sleep(600)\n"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test in an empty folder, without settings from outside."""
    for name in [name for name in os.environ if name.startswith("AOTBUILD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["comp"], "No such command 'comp'. Did you mean 'compile'?"),
        (["compile", "--profil", "x"], "No such option: --profil (Possible options: "),
        (["compile"], "no arch named (got nothing). Known: gfx90a"),
        (["compile", "--arch", ",;"], "no arch named"),
        (["compile", "--arch", "gfx943"], "unknown arch 'gfx943'. Did you mean 'gfx942'?"),
        (["compile", "--arch", "gfx942:fast+"], "unknown feature 'fast+'"),
        (["compile", "--arch", "gfx950", "--profile", "smok"], "Did you mean 'smoke'?"),
        (["compile", "--arch", "gfx950", "--jobs", "0"], "--jobs is 0, expected a whole number"),
        (["compile", "--arch", "gfx950", "--timeout", "x"], "--timeout is 'x'"),
        (["compile", "--arch", "gfx950", "--family", "atention"], "Did you mean 'attention'?"),
        (["compile", "--arch", "gfx950", "--kernels", "none"], "holds no family"),
        (["compile", "--arch", "gfx950", "--config", "no.toml"], "cannot read settings file"),
        (["inspect"], "Missing argument"),
    ],
)
def test_wrong_commands_exit_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot read pack no.aotpack"), (b"", ""), (b"PK" * 999, "")]
)
def test_a_pack_that_cannot_be_read_exits_with_1(
    content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("no.aotpack").write_bytes(content)
    assert cli.run(["inspect", "no.aotpack"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "no.aotpack" in err
    assert message in err


def test_a_compiler_that_is_not_installed(
    write_family: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = write_family()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(cli, "load_families", lambda *_: ())
    assert cli.run(["compile", "--arch", "gfx942", "--kernels", str(kernels)]) == 2
    assert "pip install 'aotbuild[compile]'" in capsys.readouterr().err


def test_a_variant_that_fails_exits_with_1(
    write_family: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write_family(kernel="raise ValueError('not today')")
    assert cli.run(_compile("--arch", "gfx942")) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "[2/2] FAILED gfx942 tiny.double/" in err
    assert "error: 2 of 2 variants failed, so no pack was written:" in err
    assert err.count("not today") == 4  # as it happens, and at the end
    assert not Path("images").exists()


def test_compile_and_inspect(write_family: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_family()
    assert cli.run(_compile("--arch", "gfx942;9.0", "--profile", "smoke", "--jobs", "1")) == 0
    out, err = capsys.readouterr()
    assert "4 variants, 1 worker\n[1/4] gfx942 tiny.double/dtype=fp16/" in err
    assert re.search(r"^gfx942  tiny +2 +2 +0 +\d+\.\d KiB +\d+\.\d KiB +\d+(\.\d)? s", out, re.M)
    assert "slowest" in out
    pack = Path.cwd() / "images" / "gfx942" / "tiny.aotpack"
    assert f"\n{pack}\n{pack.parents[1] / 'sm_90' / 'tiny.aotpack'}\ndone in " in out
    assert "\x1b" not in out + err
    assert "warning" not in err

    assert cli.run(["inspect", "--json", str(pack)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["arch"], shown["family"], shown["vendor"]) == ("gfx942", "tiny", "hip")
    assert shown["producer"] == f"aotbuild {aotbuild.__version__}"
    assert shown["meta"]["toolchain"]["triton"]
    (operator,) = shown["operators"]
    assert [tensor["name"] for tensor in operator["tensors"]] == ["x", "out"]
    assert len(operator["rows"]) == len(shown["images"]) == len(shown["code"]) == 2
    image = shown["images"][0]
    assert image["options"]["num_warps"] == 1
    assert image["facts"]["threads"] == 64
    assert image["code"] in shown["code"]

    assert cli.run(["inspect", "--images", str(pack)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^pack +tiny for gfx942$", out, re.M)
    assert "operator double, contract 1: 2 dispatch rows" in out
    assert re.search(r"dtype +dtype x = value +fp16 fp32", out)
    assert out.count("tiny.double/dtype=") == 2
    assert cli.run(["inspect", str(pack)]) == 0
    assert "tiny.double/dtype=" not in capsys.readouterr().out


def test_untested_arches_and_device_settings_are_pointed_out(
    write_family: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write_family(arches=("gfx1100", "gfx942"), dtypes=("fp16",))
    arguments = _compile("--arch", "gfx1151", "--arch", "gfx942:sramecc+:xnack-")
    assert cli.run(arguments) == 0
    err = capsys.readouterr().err
    assert "warning: gfx1151 is experimental: " in err
    assert "warning: gfx942:sramecc+:xnack- names device settings; the pack for gfx942" in err


def test_arches(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["arches"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["arch", *(arch.name for arch in ARCHES)]
    assert cli.run(["arches", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [arch["name"] for arch in shown] == [arch.name for arch in ARCHES]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"aotbuild {aotbuild.__version__}\n"


def test_the_command_line_needs_neither_triton_nor_what_single_commands_use() -> None:
    code = (
        "import sys, aotbuild.cli\n"
        "heavy = {'triton', 'torch', 'pebble', 'numpy', 'requests', 'cryptography'}\n"
        "heavy = (heavy | {'aotbuild._native'}) & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m aotbuild arches --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, text=True)
    assert done.stdout == "[\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_a_bar_and_colours_unless_unwanted(
    no_color: str, coloured: bool, write_family: Write
) -> None:
    write_family(kernel="raise ValueError('not today')", dtypes=("fp16",))
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "NO_COLOR": no_color}
    status, text = _in_terminal(_compile("--arch", "gfx942"), environ)
    assert status == 1
    assert "compiling" in text
    assert "0/1" in text
    assert "FAILED gfx942 tiny.double/" in text
    assert ("\x1b[31m" in text) == coloured


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_signals_leave_nothing_behind(
    number: signal.Signals, status: int, word: str, write_family: Write, tmp_path: Path
) -> None:
    write_family(kernel=_HANG)
    process = subprocess.Popen(
        [sys.executable, "-m", "aotbuild", *_compile("--arch", "gfx942", "--jobs", "2")],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("cache/aotbuild/runs/*/*/0/log"))) < 2:
        assert time.monotonic() < deadline, "the workers did not begin"
        time.sleep(0.05)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (status, f"error: {word}")
    assert "Traceback" not in err
    assert list(tmp_path.glob("cache/aotbuild/runs/*")) == []
    assert not (tmp_path / "images").exists()
    while _alive(process.pid):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.05)


def _alive(session: int) -> list[str]:
    """Processes of a session; multiprocessing's resource tracker ends a moment after the rest."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if its_session == str(session) and state != "Z":
                found.append(stat.parent.name)
    return found


def _compile(*arguments: str) -> list[str]:
    return ["compile", "--family", "tiny", "--kernels", "kernels", *arguments]


def _in_terminal(arguments: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Runs the command with a terminal as its streams; status and all that it showed."""
    outer, inner = os.openpty()
    command = [sys.executable, "-m", "aotbuild", *arguments]
    with subprocess.Popen(command, stdout=inner, stderr=inner, env=environ) as process:
        os.close(inner)
        shown = b""
        try:
            while chunk := os.read(outer, 4096):
                shown += chunk
        except OSError:  # how Linux reports that the other end is closed
            pass
        os.close(outer)
    return process.returncode, shown.decode()
