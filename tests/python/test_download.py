"""Downloads from servers that fail in every way; and from good ones."""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import hashlib
import ipaddress
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nginx import nginx
from scripted import response, scripted

from aotbuild import download
from aotbuild.download import Downloads
from aotbuild.errors import FetchError, TrustError
from aotbuild.index import Artifact
from aotbuild.web import Clock, Limits

DATA = random.Random(1).randbytes(300_000)
FILE = Artifact("source", "aotbuild-0.1.0+x.tar.gz", len(DATA), hashlib.sha256(DATA).hexdigest())
#: Nobody listens there.
DEAD = "http://127.0.0.1:9"


class Recorder:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.begun_at: list[int] = []

    def begun(self, file: str, size: int, position: int) -> None:
        self.begun_at.append(position)

    def moved(self, file: str, position: int) -> None:
        assert 0 < position <= FILE.size

    def noted(self, message: str) -> None:
        self.notes.append(message)

    def ended(self, file: str, seconds: float) -> None:
        assert file == FILE.file


class Store(Downloads):
    """Downloads whose waits are written down, not waited for."""

    def __init__(self, folder: Path, tick: float = 0, **more: bool) -> None:
        self.waits: list[float] = []
        self.told = Recorder()
        self._time = 0.0
        self._tick = tick
        limits = Limits(connect=5, read=5)
        clock = Clock(self._now, self.waits.append, lambda: 1.0)
        super().__init__(folder, self.told, limits=limits, clock=clock, **more)

    def _now(self) -> float:
        self._time += 0 if self.told.notes else self._tick
        return self._time

    def part(self) -> Path:
        return self.folder / f"{FILE.sha256}.part"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    made = Store(tmp_path / "downloads")
    made.folder.mkdir()
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / FILE.file).write_bytes(DATA)
    for name, data in (("wrong", DATA[:-1] + b"?"), ("short", DATA[:-1]), ("long", DATA * 2)):
        (folder / name).mkdir()
        (folder / name / FILE.file).write_bytes(data)
    return folder


def _offset(request: str) -> int:
    match = re.search(r"^Range: bytes=(\d+)-\r$", request, re.M)
    return int(match[1]) if match else 0


def _ranged(request: str, count: int) -> bytes:
    """What a good server sends, with only `count` bytes of the body."""
    offset = _offset(request)
    head = {"Content_Length": len(DATA) - offset}
    if not offset:
        return response(DATA[:count], **head)
    total = f"bytes {offset}-{len(DATA) - 1}/{len(DATA)}"
    return response(DATA[offset : offset + count], "206 Partial", Content_Range=total, **head)


@pytest.mark.parametrize(
    ("answer", "message", "tries", "kind"),
    [
        (lambda _: b"", "does not answer: ", 5, FetchError),
        (lambda _: b"SSH-2.0-OpenSSH_9\r\n", "does not answer: ", 5, FetchError),
        (lambda _: response(b"", "404 Not Found"), "answers 404 Not Found", 1, FetchError),
        (lambda _: response(b"", "403 No"), "answers 403 No", 1, FetchError),
        (lambda _: response(b"", "206 Partial"), "answers 206", 1, FetchError),
        (lambda _: response(b"", "429 Slow Down"), "answers 429 Slow Down", 5, FetchError),
        (lambda _: response(b"", "503 Busy"), "answers 503 Busy", 5, FetchError),
        (lambda _: response(b"", "302 Found", Location="file:///etc/passwd"), "cannot be asked",
         1, FetchError),
        (lambda _: response(b"", "302 Found", Location="/again"), "Exceeded 5 redirects", 1,
         FetchError),
        (lambda _: response(DATA[:-1]), "ended after 299999 of 300000 bytes", 5, FetchError),
        (lambda _: response(DATA + b"x"), "has more than the 300000 bytes", 1, TrustError),
        (lambda _: response(b"", Content_Length=1 << 50), "has 1125899906842624 bytes, the index",
         1, TrustError),
        (lambda _: response(DATA[:-1] + b"?"), "has SHA-256 [0-9a-f]{64}, the index says", 1,
         TrustError),
        (lambda _: response(b"zz\r\n" + DATA, Transfer_Encoding="chunked"), "broke off: ", 5,
         FetchError),
    ],
)  # fmt: skip
def test_servers_that_do_not_have_it(
    answer: Callable[[str], bytes], message: str, tries: int, kind: type[Exception], store: Store
) -> None:
    requests: list[str] = []

    def counted(request: str) -> bytes:
        requests.append(request)
        return answer(request)

    with scripted(counted) as url, pytest.raises(kind, match=message) as caught:
        store.get(FILE, [url])
    if "redirects" not in message and "299999" not in message:
        assert len(requests) == tries
    text = str(caught.value)
    assert text.startswith(f"cannot fetch {FILE.file}:\n  {url}/aotbuild-0.1.0%2Bx.tar.gz ")
    assert len(store.waits) == tries - 1
    assert store.waits == [1, 2, 4, 8][: tries - 1]
    assert not (store.folder / FILE.sha256).exists()
    assert b"Accept-Encoding: identity" in requests[0].encode()


def test_nothing_to_ask_is_an_error(store: Store) -> None:
    with pytest.raises(FetchError, match="no mirror is known"):
        store.get(FILE, [])


def test_the_next_mirror_is_asked_at_once_and_everything_tried_is_told(
    store: Store, site: Path
) -> None:
    with nginx(site, extra="location = /gone/ { return 404; }") as url:
        mirrors = [f"{url}/none", DEAD, f"{url}/wrong", f"{url}/short/", f"{url}/long", url]
        assert store.get(FILE, mirrors).read_bytes() == DATA
    assert store.waits == []
    told = ["answers 404", "does not answer: ", "has SHA-256", "has 299999 bytes", "has 600000"]
    assert len(store.told.notes) == len(told)
    for note, word in zip(store.told.notes, told, strict=True):
        assert word in note
    other = Store(store.folder.parent / "other")
    with pytest.raises(FetchError) as caught:
        other.get(FILE, [str(site / "none"), DEAD, str(site / "wrong")])
    text = str(caught.value)
    assert "none/aotbuild-0.1.0+x.tar.gz cannot be read: No such file" in text
    assert "Connection refused (5 times)" in text
    assert "wrong/aotbuild-0.1.0+x.tar.gz has SHA-256" in text


def test_a_connection_that_is_cut_goes_on_where_it_was(store: Store) -> None:
    offsets: list[int] = []

    def cut(request: str) -> bytes:
        offsets.append(_offset(request))
        return _ranged(request, 100_000)

    with scripted(cut) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert offsets == [0, 100_000, 200_000]
    assert "ended after 100000 of 300000" in store.told.notes[0] or "broke off" in "".join(
        store.told.notes
    )
    assert not store.part().exists()


def test_a_file_that_moves_on_is_never_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_limits", Limits(progress=20_000))
    with scripted(lambda request: _ranged(request, 20_000)) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert set(store.waits) == {1}


def test_another_process_left_a_part(store: Store, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    store.part().write_bytes(DATA[:123_456])
    with nginx(site, log=log) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert store.told.begun_at == [123_456]
    assert f" 206 {len(DATA) - 123_456} " in log.read_text()


@pytest.mark.parametrize(
    "part", [b"?" * 99, b"?" * len(DATA), DATA + b"?", DATA[:9] + b"?"], ids=len
)
def test_a_part_that_is_damaged_costs_a_download_only(
    part: bytes, store: Store, site: Path
) -> None:
    store.part().write_bytes(part)
    with nginx(site) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA


def test_a_whole_part_needs_no_server(store: Store) -> None:
    store.part().write_bytes(DATA)
    assert store.get(FILE, [DEAD]).read_bytes() == DATA


def test_a_server_without_ranges_starts_over(store: Store, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    store.part().write_bytes(DATA[:1000])
    with nginx(site, extra="max_ranges 0;", log=log) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert f" 200 {len(DATA)} " in log.read_text()


@pytest.mark.parametrize(
    "first",
    [
        response(b"", "416 Range Not Satisfiable", Content_Range="bytes */5"),
        response(DATA, "206 Partial", Content_Range=f"bytes 0-{len(DATA) - 1}/{len(DATA)}"),
        response(DATA, "206 Partial"),
        response(DATA, "206 Partial", Content_Range="bytes 1000-x/y"),
    ],
)
def test_a_range_that_was_not_asked_for_starts_over(first: bytes, store: Store) -> None:
    store.part().write_bytes(DATA[:1000])
    with scripted(lambda request: first if _offset(request) else response(DATA)) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert store.waits == [1]


def test_a_file_of_another_size_behind_a_range(store: Store) -> None:
    store.part().write_bytes(DATA[:1000])
    head = {"Content_Range": "bytes 1000-400000/400001"}
    with (
        scripted(lambda _: response(DATA, "206 Partial", **head)) as url,
        pytest.raises(TrustError, match="has 400001 bytes, the index says 300000"),
    ):
        store.get(FILE, [url])


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ("7", [7, 7]),
        ("999999999", [60, 60]),
        ("soon", [1, 2]),
        ("-1", [1, 2]),
        ("Wed, 01 Jan 2020 00:00:00 GMT", [1, 2]),
        ("Fri, 01 Jan 2100 00:00:00 GMT", [60, 60]),
    ],
)
def test_servers_may_ask_for_time(asked: str, waits: list[float], store: Store) -> None:
    answers = [response(b"", "503 Busy", Retry_After=asked)] * 2 + [response(DATA)]
    with scripted(lambda _: answers.pop(0)) as url:
        store.get(FILE, [url])
    assert store.waits == waits


def test_a_server_that_almost_stops_is_left(store: Store, site: Path, tmp_path: Path) -> None:
    slow = Store(
        store.folder, tick=400
    )  # until it tells something, each look at the clock is 400 s later
    log = tmp_path / "log"
    with nginx(site, extra="limit_rate 100k;") as first, nginx(site, log=log) as second:
        slow.get(FILE, [first, second])
    assert re.search(r"is too slow: \d+ bytes in 400 s", slow.told.notes[0])
    assert " 206 " in log.read_text()
    assert slow.waits == []


def test_a_redirect_is_followed(store: Store, site: Path) -> None:
    with nginx(site) as there, nginx(site, extra=f"return 302 {there}$request_uri;") as url:
        assert store.get(FILE, [url]).read_bytes() == DATA


def test_a_content_encoding_changes_nothing(store: Store) -> None:
    """Servers call a .tar.gz a packed tar; what counts are the bytes of the file."""
    with scripted(lambda _: response(DATA, Content_Encoding="gzip")) as url:
        assert store.get(FILE, [url]).read_bytes() == DATA


def test_local_mirrors(store: Store, site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b%é"
    folder.mkdir()
    (folder / FILE.file).write_bytes(DATA)
    assert store.get(FILE, [str(folder)]).read_bytes() == DATA
    other = Store(tmp_path / "other")
    assert other.get(FILE, [str(site / "short"), folder.as_uri()]).read_bytes() == DATA
    with pytest.raises(TrustError, match="has 600000 bytes"):
        Store(tmp_path / "third").get(FILE, [str(site / "long")])


def test_what_is_there_is_not_fetched_and_damage_is_noticed(store: Store, site: Path) -> None:
    path = store.get(FILE, [str(site)])
    assert store.get(FILE, [DEAD]) == path
    path.write_bytes(DATA[:-1] + b"?")
    assert store.get(FILE, [str(site)]).read_bytes() == DATA


def test_offline_asks_no_server(store: Store, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    offline = Store(tmp_path / "offline", offline=True)
    with nginx(site, log=log) as url:
        with pytest.raises(FetchError, match="no mirror is known that is a local folder"):
            offline.get(FILE, [url])
        assert offline.missing(FILE, [url, str(site / "none")])
        assert not offline.missing(FILE, [url, str(site)])
        assert offline.get(FILE, [url, str(site)]).read_bytes() == DATA
    assert log.read_text() == ""


def test_an_index_is_read_within_bounds(store: Store, site: Path) -> None:
    with nginx(site) as url:
        assert store.read(f"{url}/{FILE.file}", len(DATA)) == DATA
        with pytest.raises(FetchError, match="is larger than 299999 bytes"):
            store.read(f"{url}/{FILE.file}", len(DATA) - 1)


def test_passwords_are_not_shown(store: Store) -> None:
    with pytest.raises(FetchError) as caught:
        store.get(FILE, ["http://me:secret@127.0.0.1:9"])
    assert "secret" not in str(caught.value) + "".join(store.told.notes)
    assert "http://***@127.0.0.1:9/" in str(caught.value)


def test_a_proxy_is_asked(store: Store, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nginx(site) as url:  # which answers for any host, as a proxy would
        monkeypatch.setenv("HTTP_PROXY", url)
        assert store.get(FILE, ["http://mirror.invalid"]).read_bytes() == DATA
        monkeypatch.setenv("HTTP_PROXY", DEAD)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert Store(store.folder.parent / "direct").get(FILE, [url]).read_bytes() == DATA
    with pytest.raises(FetchError, match=r"mirror\.invalid"):
        Store(store.folder.parent / "dead").get(FILE, ["http://mirror.invalid"])


def test_https_with_an_authority_of_ones_own(
    store: Store, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate, key = _certificates(tmp_path)
    with nginx(site, certificate=(certificate, key)) as url:
        with pytest.raises(FetchError, match=r"no certificate that is trusted.*REQUESTS_CA_BUNDLE"):
            store.get(FILE, [url])
        assert store.waits == []
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
        with pytest.raises(FetchError, match=r"cannot be asked for: .*none\.pem"):
            store.get(FILE, [url])
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        assert store.get(FILE, [url]).read_bytes() == DATA
        with (
            nginx(site) as plain,
            nginx(site, certificate=(certificate, key), extra=f"return 302 {plain}/;") as back,
        ):
            (site / "index.html").write_bytes(b"x")
            with pytest.raises(FetchError, match="leads to a place without https"):
                store.read(f"{back}/index.json", 9)


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Files of an authority, and of a certificate for 127.0.0.1 that it signed, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = dt.datetime.now(dt.timezone.utc)

    def make(name: str, issuer: str, signer: ec.EllipticCurvePrivateKey | None) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name.from_rfc4514_string(f"CN={name}"))
            .issuer_name(x509.Name.from_rfc4514_string(f"CN={issuer}"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(signer is None, None), critical=True)
        )
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        if signer:
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        made = builder.sign(signer or key, hashes.SHA256())
        path = folder / f"{name}.pem"
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )  # fmt: skip
        path.with_suffix(".key").write_bytes(private)
        keys[name] = key
        return path

    keys: dict[str, ec.EllipticCurvePrivateKey] = {}
    authority = make("authority", "authority", None)
    certificate = make("server", "authority", keys["authority"])
    return authority, certificate, certificate.with_suffix(".key")


_GET = """\
import sys
sys.path.insert(0, {tests!r})
from test_download import FILE, Recorder
from aotbuild.download import Downloads
from pathlib import Path
Downloads(Path({folder!r}), Recorder()).get(FILE, [{mirror!r}])
"""


def _get(folder: Path, mirror: str, before: str = "") -> list[str]:
    code = _GET.format(tests=str(Path(__file__).parent), folder=str(folder), mirror=mirror)
    return [sys.executable, "-c", before + code]


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_processes_at_once_share_one_download(store: Store, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with nginx(site, extra="limit_rate 200k;", log=log) as url:
        started = [subprocess.Popen(_get(store.folder, url), env=_environ()) for _ in range(3)]
        assert [process.wait(60) for process in started] == [0, 0, 0]
    assert log.read_text().count("GET ") == 1
    assert [path.name for path in store.folder.iterdir()] == [FILE.sha256]


def test_a_disk_without_room_is_told_first(
    store: Store, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = download.shutil.disk_usage(store.folder)._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(FetchError, match=r"has 1000 bytes free, and about 300000 are needed; make"):
        store.get(FILE, [str(site)])


def test_a_disk_that_is_full_in_the_middle(store: Store, site: Path) -> None:
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (100_000, 100_000))\n"
    command = _get(store.folder, str(site), limit)
    done = subprocess.run(
        command, env=_environ(), capture_output=True, check=False, text=True, timeout=60
    )
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert f"cannot write {store.folder}" in told
    assert os.strerror(errno.EFBIG) in told
    assert re.search(r"about \d{6} more bytes are needed there\); make room", told)
    with nginx(site) as url:  # and the next one goes on
        assert store.get(FILE, [url]).read_bytes() == DATA
    assert store.told.begun_at == [store.told.begun_at[0]]
    assert 0 < store.told.begun_at[0] <= 100_000


def test_downloads_are_bounded(store: Store, site: Path) -> None:
    path = store.get(FILE, [str(site)])
    store.prune(len(DATA))
    assert path.exists()
    for name, time in (("b.part", 0), ("a.part", 1), (path.name, 2), ("c" * 64, 3)):
        (store.folder / name).touch()
        os.utime(store.folder / name, (time, time))
    (store.folder / ("c" * 64)).write_bytes(b"x")
    with (store.folder / "a.part").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        store.prune(1)
    assert sorted(path.name for path in store.folder.iterdir()) == ["a.part", "c" * 64]
