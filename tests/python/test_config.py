"""Settings: where they come from, and what is said of wrong ones."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotbuild import config
from aotbuild.config import Settings, load
from aotbuild.errors import UsageError
from aotbuild.plan import Profile

_DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def _file(folder: Path, text: str) -> None:
    (folder / config.CONFIG_FILE).write_text(text, "utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cache-limit = 1", "unknown setting 'cache-limit'. Did you mean 'cache_limit'?"),
        ("[tool]\n", "unknown setting 'tool'"),
        ("jobs = '2'", "jobs is '2', expected a whole number from 1 to 4096"),
        ("jobs = true", "jobs is True, expected a whole number"),
        ("jobs = 0", "jobs is 0"),
        ("jobs = 4097", "jobs is 4097"),
        ("timeout = 0", "timeout is 0, expected a number of seconds above 0"),
        ("timeout = nan", "timeout is nan"),
        ("timeout = inf", "timeout is inf"),
        ("cache = 'yes'", "cache is 'yes', expected true or false"),
        ("cache_limit = -1", "cache_limit is -1"),
        ("cache_limit = '4GB'", "cache_limit is '4GB', expected a number of bytes, or a size"),
        ("cache_dir = ''", "cache_dir is '', expected a path"),
        ("output = 3", "output is 3, expected a path"),
        ("family = 'attention'", "family is 'attention', expected a list of names"),
        ("family = [1]", "family is [1]"),
        ("kernels = ['']", "kernels is ['']"),
        (
            "profile = 'smok'",
            "profile is 'smok', expected one of smoke, standard, full. Did you mean",
        ),
        ("profile = []", "profile is []"),
        ("index = 'ftp://a/b'", "index is 'ftp://a/b', expected a URL of http or https, or a path"),
        ("index = 'https:///b'", "index is 'https:///b'"),
        ("index = 1", "index is 1"),
        ("mirror = ['a', 'rsync://b']", "expected a list of URLs of http or https and paths"),
        ("mirror = 'a'", "mirror is 'a'"),
        ("key = ['AB']", "key is ['AB'], expected a list of Ed25519 public keys, 64 digits"),
        ("jobs = ", "is not TOML: "),
    ],
)
def test_wrong_files_are_told_with_file_and_value(text: str, message: str, tmp_path: Path) -> None:
    _file(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load({}, environ={}, folder=tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / config.CONFIG_FILE) in str(caught.value)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / config.CONFIG_FILE).write_bytes(b"output = '\xff'")
    with pytest.raises(UsageError, match="is not TOML"):
        load({}, environ={}, folder=tmp_path)


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_named_file_must_exist(how: str, tmp_path: Path) -> None:
    options = {"config": "other.toml"} if how == "option" else {}
    environ = {"AOTBUILD_CONFIG": "other.toml"} if how == "environment" else {}
    with pytest.raises(UsageError, match=r"cannot read settings file .*other\.toml: No such file"):
        load(options, environ=environ, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobs", "two"),
        ("jobs", "1e3"),
        ("timeout", "1_000"),
        ("timeout", "-1"),
        ("cache", "perhaps"),
        ("cache_limit", "lots"),
        ("profile", "Full"),
        ("family", " "),
    ],
)
def test_wrong_words_are_told_with_their_place(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"AOTBUILD_{name.upper()} is "):
        load({}, environ={f"AOTBUILD_{name.upper()}": text}, folder=tmp_path)
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} is "):
        load({name: text}, environ={}, folder=tmp_path)


def test_precedence(tmp_path: Path) -> None:
    _file(tmp_path, "jobs = 2\ntimeout = 2.5\nprofile = 'full'\ncache_limit = '2MiB'")
    environ = {"AOTBUILD_JOBS": "3", "AOTBUILD_TIMEOUT": "3", "AOTBUILD_PROFILE": ""}
    settings = load({"jobs": "4", "family": []}, environ=environ, folder=tmp_path)
    assert (settings.jobs, settings.timeout) == (4, 3.0)
    assert settings.profile is Profile.FULL  # an empty variable counts as unset
    assert settings.cache_limit == 2 << 20
    assert settings.output == tmp_path / "images"


def test_a_wrong_value_counts_though_a_stronger_one_is_given(tmp_path: Path) -> None:
    _file(tmp_path, "jobs = 0")
    with pytest.raises(UsageError, match="jobs is 0"):
        load({"jobs": "1"}, environ={"AOTBUILD_JOBS": "1"}, folder=tmp_path)


def test_paths_belong_to_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "a.toml").write_text("output = 'out'\nkernels = ['k', '/k']", "utf-8")
    settings = load({"config": "etc/a.toml"}, environ={}, folder=tmp_path)
    assert settings.output == tmp_path / "etc" / "out"
    assert settings.kernels == (tmp_path / "etc" / "k", Path("/k"))
    environ = {"AOTBUILD_KERNELS": "a b:~/c", "AOTBUILD_OUTPUT": "o,p"}
    settings = load({}, environ=environ, folder=tmp_path)
    assert settings.kernels == (tmp_path / "a b", tmp_path / "home" / "c")
    assert settings.output == tmp_path / "o,p"


def test_places_are_urls_or_paths(tmp_path: Path) -> None:
    _file(tmp_path, "index = 'site/index.json'\nmirror = ['https://a/b', 'c d', 'file:///e%20f']")
    settings = load({}, environ={"XDG_DATA_HOME": "/data"}, folder=tmp_path)
    assert settings.index == str(tmp_path / "site/index.json")
    assert settings.mirror == ("https://a/b", str(tmp_path / "c d"), "/e f")
    assert settings.fetch_to == Path("/data/aotbuild/images")
    environ = {
        "AOTBUILD_MIRROR": "http://a /b",
        "AOTBUILD_INDEX": "https://c",
        "XDG_DATA_HOME": "d",
    }
    settings = load({"mirror": ["e,f g", "http://h"]}, environ=environ, folder=tmp_path)
    assert settings.mirror == (str(tmp_path / "e,f g"), "http://h")
    assert settings.index == "https://c"
    assert settings.fetch_to == Path.home() / ".local/share/aotbuild/images"
    settings = load({}, environ=environ, folder=tmp_path)
    assert settings.mirror == ("http://a", "/b")


def test_an_option_may_have_a_shorter_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--to is '', expected a path"):
        load({"fetch_to": ""}, environ={}, folder=tmp_path)


def test_repeated_options_add_up(tmp_path: Path) -> None:
    options: dict[str, str | list[str] | None] = {"family": ["a,b", "c a"], "kernels": ["x:y", "z"]}
    settings = load(options, environ={"AOTBUILD_FAMILY": "other"}, folder=tmp_path)
    assert settings.family == ("a", "b", "c")
    assert settings.kernels == (tmp_path / "x:y", tmp_path / "z")


@pytest.mark.parametrize("text", ["1", "TRUE", "on", "yes"])
def test_switches(text: str, tmp_path: Path) -> None:
    assert load({}, environ={"AOTBUILD_CACHE": text}, folder=tmp_path).cache
    _file(tmp_path, "cache = false")
    assert not load({}, environ={}, folder=tmp_path).cache


def test_the_cache_follows_xdg_but_not_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.default_cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/aotbuild")
    assert config.default_cache_dir({"XDG_CACHE_HOME": "c"}) == tmp_path / ".cache" / "aotbuild"
    assert config.default_cache_dir({}) == tmp_path / ".cache" / "aotbuild"


def test_jobs_are_bounded_by_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  4194304 kB\n")
    assert config.usable_memory(tmp_path) == 4 * config.GIB
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert config.usable_memory(tmp_path) == 4 * config.GIB
    (group / "memory.max").write_text("1000\n")
    assert config.usable_memory(tmp_path) == 1000
    assert config.usable_memory(tmp_path / "nowhere") == sys.maxsize
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    for memory, jobs in ((0, 1), (4 * config.GIB, 2), (sys.maxsize, 64)):
        monkeypatch.setattr(config, "usable_memory", lambda memory=memory: memory)
        assert config.default_jobs() == jobs


@given(st.integers(1, 4096), st.floats(0.001, 1e6), st.booleans(), st.sampled_from(Profile))
def test_the_environment_and_toml_say_the_same(
    jobs: int, timeout: float, cache: bool, profile: Profile
) -> None:
    timeout = round(timeout, 6)
    text = f"jobs = {jobs}\ntimeout = {timeout:f}\ncache = {str(cache).lower()}\n"
    environ = {
        "AOTBUILD_JOBS": str(jobs),
        "AOTBUILD_TIMEOUT": f"{timeout:f}",
        "AOTBUILD_CACHE": str(cache),
        "AOTBUILD_PROFILE": profile.value,
    }
    with tempfile.TemporaryDirectory() as folder:
        by_environment = load({}, environ=environ, folder=Path(folder))
        _file(Path(folder), f"{text}profile = '{profile.value}'\n")
        assert load({}, environ={}, folder=Path(folder)) == by_environment
    assert by_environment.timeout == timeout


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().jobs = 2  # type: ignore[misc]


def test_the_page_is_current() -> None:
    command = [sys.executable, "-m", "aotbuild.config"]
    page = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert _DOCS.read_text("utf-8") == page, "run: python -m aotbuild.config > docs/settings.md"
    for field in dataclasses.fields(Settings):
        assert f"| `{field.name}` |" in page
