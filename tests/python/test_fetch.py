"""Fetching: what is refused, what is told, and that a folder is never left in between."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fetching import TO, Fetch
from nginx import nginx
from small_release import (
    PUBLIC,
    image_archive,
    pack_bytes,
    write_release,
    write_signed,
)

from aotbuild import trust
from aotbuild.archive import Member, write_archive
from aotbuild.index import Artifact, Index, read_index
from aotbuild.pack import open_pack

pytestmark = pytest.mark.usefixtures("own_folder")

_OTHER = hashlib.sha256(b"other").hexdigest()
LOCK = TO / "aotbuild.lock.json"


def _release(note: str = "", **more: object) -> Index:
    return write_release(Path("site"), note=note, **more)  # type: ignore[arg-type]


def _packs() -> dict[str, str]:
    """The packs in the folder, each undamaged: pack_id by place."""
    return {str(p.relative_to(TO)): open_pack(p).pack_id for p in sorted(TO.glob("*/*.aotpack"))}


def _expected(*artifacts: Artifact) -> dict[str, str]:
    return {f"{a.arch}/{a.family}.aotpack": a.pack_id for a in artifacts}


def _clean() -> bool:
    return not (TO / ".incoming").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "no arch named"),
        (["--arch", ",;"], 2, "no arch named"),
        (["--arch", "gfx1030,gfx11-generic"], 2, "gfx11-generic: arch 'gfx11-generic' is a gen"),
        (["--arch", "sm_90"], 1, "sm_90: nothing of vector is published for sm_90"),
        (["--arch", "gfx942,gfx1030", "--strict-arch"], 1, "gfx1030: unknown arch"),
        (["--arch", "gfx942", "--family", "vectr"], 2, "Did you mean 'vector'?"),
        (["--arch", "gfx942", "--locked", "site/index.json"], 2, "give one"),
        (["--arch", "gfx942", "--index", "none"], 1, "cannot read index "),
        (["--arch", "gfx942", "--index", "ftp://x"], 2, "--index is 'ftp://x', expected a URL"),
        (["--arch", "gfx942", "--key", "ab"], 2, "--key is ['ab'], expected a list of Ed25519"),
        (["--arch", "gfx942", "--offline", "--index", "http://127.0.0.1:9"], 1, "offline is set"),
    ],
)
def test_wrong_commands_change_nothing(
    arguments: list[str], status: int, message: str, fetch: Fetch
) -> None:
    _release()
    index = [] if "--index" in arguments else ["--index", "site"]
    told = fetch(*index, *arguments)
    assert told.status == status
    assert message in told.err
    assert "Traceback" not in told.err
    assert not TO.exists()


def test_the_pinned_index_is_used_when_none_is_named(fetch: Fetch) -> None:
    told = fetch("--arch", "gfx950")
    pinned = trust.pinned_index().index
    if not any(item.arch == "gfx950" for item in pinned.artifacts):
        assert (told.status, told.out) == (1, "")
        assert "nothing is published for gfx950" in told.err
    assert pinned.arches


def test_packs_come_from_a_server_and_are_fetched_once(fetch: Fetch, tmp_path: Path) -> None:
    index = _release()
    with nginx(Path("site").absolute(), log=tmp_path / "log") as url:
        _trusted = ("--index", url, "--key", PUBLIC)
        told = fetch(*_trusted, "--arch", "gfx942;gfx950:xnack-, gfx1030 sm_90")
        assert (told.status, _clean()) == (0, True)
        lines = [line.rstrip() for line in told.out.splitlines()]
        assert re.match(r"named +arch +packs +size +note$", lines[0])
        assert re.match(r"gfx942 +gfx942 +vector +\d+\.\d KiB$", lines[1])
        assert re.match(
            r"gfx950:xnack- +gfx950 +vector .* serves gfx950 with any setting$", lines[2]
        )
        assert re.match(r"gfx1030 +- +skipped +- +unknown arch 'gfx1030'", lines[3])
        assert re.match(r"sm_90 +sm_90 +skipped +- +nothing of vector is published", lines[4])
        assert re.fullmatch(r"fetched 2 packs \(\d+\.\d KiB\) in .*/packs", lines[5])
        assert "\x1b" not in told.out + told.err
        assert _packs() == _expected(*index.artifacts)
        lock = read_index(LOCK.read_bytes(), "lock")
        assert (lock.artifacts, lock.mirrors) == (index.artifacts, (url,))

        requests = (tmp_path / "log").read_text().count(".tar.gz")
        again = fetch(*_trusted, "--arch", "gfx942,gfx950")
        assert again.status == 0
        assert again.out.splitlines()[-1].startswith("2 up to date in ")
        assert (tmp_path / "log").read_text().count(".tar.gz") == requests == 2


def test_the_default_folder_is_one_that_the_runtime_searches(fetch: Fetch, tmp_path: Path) -> None:
    _release()
    assert fetch("--index", "site", "--arch", "gfx942", to=False).status == 0
    assert (tmp_path / "data/aotbuild/images/gfx942/vector.aotpack").is_file()


def test_a_dry_run_says_what_and_changes_nothing(fetch: Fetch, tmp_path: Path) -> None:
    index = _release(mirrors=["https://mirror.invalid/x"])
    told = fetch("--index", "site", "--mirror", "http://u:p@first.invalid/", "--dry-run",
                 "--arch", "gfx942")  # fmt: skip
    file = index.artifacts[0].file
    assert told.status == 0
    assert told.out.splitlines()[-4:] == [
        file,
        f"  http://***@first.invalid/{file}",
        f"  {tmp_path}/site/{file}",
        f"  https://mirror.invalid/x/{file}",
    ]
    assert not TO.exists()
    assert not Path("cache").exists()


def _signed(index: Index, **more: object) -> None:
    write_signed(Path("site"), dataclasses.replace(index, **more))  # type: ignore[arg-type]


# ---- packs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("arch", "gfx90a", "holds gfx942/vector.aotpack; expected gfx90a/vector.aotpack"),
        ("family", "norm", "holds gfx942/vector.aotpack; expected gfx942/norm.aotpack"),
        ("pack_id", _OTHER, "pack_id of its pack is "),
        ("contracts", {"vector.scale": 2, "vector.sum": 3}, "contracts of its pack is "),
        ("contracts", {"attention.forward": 99}, "has contract 99 of attention.forward, and this"),
        ("sha256", _OTHER, f"the index says {_OTHER}"),
        ("size", 7, "bytes, the index says 7"),
    ],
)
def test_a_pack_that_is_not_what_the_index_says(
    field: str, value: object, message: str, fetch: Fetch
) -> None:
    _release("old")
    assert fetch("--index", "site", "--arch", "gfx942").status == 0
    before = _packs()
    index = _release("new")
    wrong = dataclasses.replace(index.artifacts[0], **{field: value})  # type: ignore[arg-type]
    _signed(index, artifacts=(wrong, index.artifacts[1]))
    told = fetch("--index", "site", "--arch", f"{wrong.arch},gfx950")
    assert told.status == 1
    assert message in told.err
    assert (_packs(), _clean()) == (before, True)


def test_a_pack_inside_that_is_for_another_arch(fetch: Fetch) -> None:
    index = _release()
    artifact, _ = image_archive(pack_bytes("gfx942", "x"), "0.1.0")
    data = write_archive([Member("gfx942/vector.aotpack", pack_bytes("gfx950", "x"))])
    Path("site", artifact.file).write_bytes(data)
    lying = dataclasses.replace(artifact, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    _signed(index, artifacts=(lying,))
    told = fetch("--index", "site", "--arch", "gfx942")
    assert told.status == 1
    assert "arch of its pack is 'gfx950', the index says 'gfx942'" in told.err


def test_a_damaged_pack_is_fetched_again_and_a_strangers_is_kept(fetch: Fetch) -> None:
    index = _release()
    arguments = ("--index", "site", "--arch", "gfx942")
    assert fetch(*arguments).status == 0
    path = TO / "gfx942/vector.aotpack"
    path.write_bytes(b"damaged")
    assert fetch(*arguments).status == 0
    assert _packs() == _expected(index.artifacts[0])
    stranger = pack_bytes("gfx950", "compiled here")
    (TO / "gfx950").mkdir()
    (TO / "gfx950/vector.aotpack").write_bytes(stranger)
    told = fetch("--index", "site", "--arch", "gfx950")
    assert told.status == 1
    assert "gfx950/vector.aotpack is in the way: fetch did not put it there" in told.err
    assert (TO / "gfx950/vector.aotpack").read_bytes() == stranger


def test_a_folder_holds_packs_of_one_version(fetch: Fetch) -> None:
    _release("old")
    assert fetch("--index", "site", "--arch", "gfx942,gfx950").status == 0
    later = _release("new", version="0.1.1")
    told = fetch("--index", "site", "--arch", "gfx950")
    assert told.status == 0
    assert "removed gfx942/vector.aotpack: of another version" in told.out
    assert _packs() == _expected(later.artifacts[1])
    assert not (TO / "gfx942").exists()
    assert fetch("--index", "site", "--arch", "gfx942").status == 0
    assert _packs() == _expected(*later.artifacts)
    assert read_index(LOCK.read_bytes(), "lock").artifacts == later.artifacts


def test_a_lock_file_brings_the_same_packs(fetch: Fetch, tmp_path: Path) -> None:
    first = _release("first")
    with nginx(Path("site").absolute()) as url:
        assert fetch("--index", url, "--key", PUBLIC, "--arch", "gfx942,gfx950").status == 0
        LOCK.rename("kept.json")
        told = fetch("--locked", "kept.json", "--to", "other", to=False)
        assert told.status == 0
        for artifact in first.artifacts:
            path = Path("other", artifact.arch, "vector.aotpack")
            assert open_pack(path).pack_id == artifact.pack_id
        assert (
            fetch("--locked", "kept.json", "--arch", "gfx950", "--to", "one", to=False).status == 0
        )
        assert [path.name for path in Path("one").glob("gfx*")] == ["gfx950"]
        _release("second")  # under the same names
        empty = ("--cache-dir", str(tmp_path / "empty"))
        told = fetch("--locked", "kept.json", "--to", "third", *empty, to=False)
        assert told.status == 1
        assert "the index says" in told.err


def test_offline(fetch: Fetch, tmp_path: Path) -> None:
    index = _release()
    with nginx(Path("site").absolute()) as url:
        assert fetch("--index", url, "--key", PUBLIC, "--arch", "gfx942").status == 0
    Path("only").mkdir()
    Path("site/index.json").rename("only/index.json")
    arguments = ("--index", "only", "--offline", "--to", "off")
    assert fetch(*arguments, "--arch", "gfx942", to=False).status == 0
    told = fetch(*arguments, "--arch", "gfx942,gfx950", "--mirror", "http://127.0.0.1:9", to=False)
    assert told.status == 1
    assert "offline is set, and neither " in told.err
    assert index.artifacts[1].file in told.err
    assert index.artifacts[0].file not in told.err
    told = fetch(*arguments, "--arch", "gfx942,gfx950", "--mirror", "site", to=False)
    assert told.status == 0


def test_a_mirror_on_the_command_line_comes_first(fetch: Fetch, tmp_path: Path) -> None:
    _release()
    with nginx(Path("site").absolute(), log=tmp_path / "log") as url:
        assert fetch("--index", "site", "--mirror", url, "--arch", "gfx942").status == 0
    assert " 200 " in (tmp_path / "log").read_text()


# ---- interruptions -------------------------------------------------------------------------------


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aotbuild", "fetch", "--to", str(TO), *arguments]


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


#: Runs the command for each number that it reads, in a process that ends the hard way at that
#: many of the calls which change the folder. Prints how each ended.
_DIE = """\
import os, signal, sys
from pathlib import Path
from aotbuild import cli, fetch
left, folder = 1 << 60, str(Path("packs").absolute())
def inside(place):
    name = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)
    return os.path.abspath(name).startswith(folder)
def dying(real):
    def call(place, *arguments, **more):
        global left
        left -= inside(place)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(place, *arguments, **more)
    return call
for name in ("replace", "unlink", "mkdir", "rmdir"):
    setattr(Path, name, dying(getattr(Path, name)))
os.fsync, os.rmdir, os.unlink = dying(os.fsync), dying(os.rmdir), dying(os.unlink)
for line in sys.stdin:
    child = os.fork()
    if not child:
        left = int(line)
        os.dup2(2, 1)
        os._exit(cli.run(sys.argv[1:]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextlib.contextmanager
def _dying(*arguments: str) -> Iterator[Callable[[int], int]]:
    """Runs the command to a number of steps; gives its exit status."""
    command = [sys.executable, "-c", _DIE, *_command(*arguments)[3:]]
    with subprocess.Popen(
        command, env=_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip

        def run(steps: int) -> int:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run


def test_killed_at_any_step_it_leaves_each_pack_old_or_new(fetch: Fetch) -> None:
    """And the next fetch: Fetch, of whatever, finishes what was decided."""
    arches = ("--arch", "gfx942,gfx950")
    old = write_release(Path("old"), note="old")
    new = write_release(Path("new"), note="new", version="0.1.1")
    third = write_release(Path("third"), ["gfx90a"], version="0.1.1")
    assert fetch("--index", "old", *arches, "--to", "before", to=False).status == 0
    states = set()
    with _dying("--index", "new", *arches) as run:
        for step in range(200):
            shutil.rmtree(TO, ignore_errors=True)
            shutil.copytree("before", TO)
            status = run(step)
            assert status in (0, -signal.SIGKILL)
            for place, pack_id in _packs().items():
                known = (_expected(*old.artifacts)[place], _expected(*new.artifacts)[place])
                assert pack_id in known
            decided = (TO / ".incoming/aotbuild.lock.json").exists()
            if not decided:  # all are what the lock file says
                lock = read_index(LOCK.read_bytes(), "lock")
                assert _packs() == _expected(*lock.artifacts)
            # The third is of version 0.1.1, as the new packs, and takes the old ones away.
            assert fetch("--index", "third", "--arch", "gfx90a").status == 0
            assert _clean()
            packs = _packs()
            del packs["gfx90a/vector.aotpack"]
            assert packs in ({}, _expected(*new.artifacts))
            if decided or status == 0:
                assert packs == _expected(*new.artifacts)
            content = (*third.artifacts, *(new.artifacts if packs else ()))
            lock = read_index(LOCK.read_bytes(), "lock")
            assert lock.artifacts == tuple(sorted(content, key=lambda item: item.file))
            states.add((decided, status, bool(packs)))
            if status == 0:
                break
    assert states >= {(False, -9, False), (True, -9, True), (False, 0, True)}


def test_killed_at_any_moment_a_repetition_completes(tmp_path: Path) -> None:
    index = _release(size=400_000)
    chance = random.Random(3)
    killed = 0
    with nginx(Path("site").absolute(), extra="limit_rate 600k;") as url:
        command = _command("--index", url, "--key", PUBLIC, "--arch", "gfx942,gfx950")
        for _ in range(12):
            process = subprocess.Popen(command, env=_environ(), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)  # fmt: skip
            try:
                process.wait(0.3 + 1.2 * chance.random())
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
            expected = _expected(*index.artifacts)
            assert all(expected[place] == pack_id for place, pack_id in _packs().items())
        subprocess.run(command, env=_environ(), check=True, capture_output=True, timeout=60)
    assert killed
    assert _packs() == _expected(*index.artifacts)
    assert _clean()
    assert list(tmp_path.glob("cache/aotbuild/downloads/*.part")) == []


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_signals_keep_what_was_downloaded_and_change_nothing(
    number: signal.Signals, status: int, word: str, tmp_path: Path
) -> None:
    _release(size=400_000)
    with nginx(Path("site").absolute(), extra="limit_rate 50k;") as url:
        command = _command("--index", url, "--key", PUBLIC, "--arch", "gfx942")
        process = subprocess.Popen(command, env=_environ(), stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not any(p.stat().st_size for p in tmp_path.glob("cache/aotbuild/downloads/*.part")):
            assert time.monotonic() < deadline, "the download did not begin"
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (status, f"error: {word}")
    assert "Traceback" not in err
    assert (_packs(), _clean()) == ({}, True)


def test_two_at_once_both_succeed_with_one_download(tmp_path: Path) -> None:
    index = _release(size=200_000)
    log = tmp_path / "log"
    with nginx(Path("site").absolute(), extra="limit_rate 200k;", log=log) as url:
        arguments = ("--index", url, "--key", PUBLIC, "--arch", "gfx942")
        commands = [_command(*arguments), _command(*arguments), _command(*arguments)]
        commands[2][5] = "elsewhere"
        processes = [
            subprocess.Popen(command, env=_environ(), stdout=subprocess.PIPE, text=True)
            for command in commands
        ]
        out = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert log.read_text().count(".tar.gz") == 1
    assert sorted(text.splitlines()[-1].split()[0] for text in out[:2]) == ["1", "fetched"]
    assert _packs() == _expected(index.artifacts[0])
    assert Path("elsewhere/gfx942/vector.aotpack").is_file()


@pytest.mark.parametrize(
    ("room", "message"),
    [
        ("200k", r"/packs has \d+ bytes free, and about \d{6} are needed; make room, or name"),
        ("400k", r"/packs\S*: No space left on device \(about \d{6} more .*; make room, or name"),
    ],
)
def test_a_folder_on_a_full_disk(room: str, message: str) -> None:
    """A real one: a small file system in a name space of its own."""
    _release(size=300_000)
    command = " ".join(_command("--index", "site", "--arch", "gfx942"))
    script = f"""
mkdir -p packs
mount -t tmpfs -o size={room} none packs
{command}; echo status $?
ls -A packs
"""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script],
        env=_environ(), check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "status 1" in done.stdout
    assert re.search(rf"^error: .*{message} another folder with --to$", done.stderr, re.M)
    assert done.stdout.splitlines()[-1] == ".lock"


def test_a_terminal_gets_a_bar() -> None:
    _release(size=100_000)
    with nginx(Path("site").absolute(), extra="limit_rate 100k;") as url:
        outer, inner = os.openpty()
        command = _command("--index", url, "--key", PUBLIC, "--arch", "gfx942", "--mirror", "none")
        environ = {**_environ(), "TERM": "xterm", "COLUMNS": "150"}
        with subprocess.Popen(command, stdout=inner, stderr=inner, env=environ) as process:
            os.close(inner)
            shown = b""
            with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
                while chunk := os.read(outer, 4096):
                    shown += chunk
            os.close(outer)
    text = shown.decode()
    assert process.returncode == 0
    assert "cannot be read: No such file" in text
    assert re.search(r"\d+\.\d/\d+\.\d KiB", text)
    assert "fetched 1 pack (" in text
