"""Which index is trusted: unsigned, altered, stale and withdrawn ones first."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import pytest
from fetching import TO, Fetch
from nginx import nginx
from small_release import PUBLIC, write_release, write_signed

from aotbuild import signature, trust
from aotbuild.index import Index, write_index

pytestmark = pytest.mark.usefixtures("own_folder")
SITE = Path("site")


def _signed(index: Index, **more: object) -> None:
    write_signed(SITE, dataclasses.replace(index, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no signature", "its signature cannot be had, so it is not trusted (--allow-unsigned"),
        ("malformed", "its signature file is malformed"),
        ("other key", f"signed by none of the trusted keys ({PUBLIC})"),
        ("changed", "signed by none of the trusted keys"),
        ("no key", "no key is known that may sign it; name one with --key"),
        ("expired", "expired on 2020-01-31 00:00 UTC (it is 20"),
        ("another version", "is for aotbuild 0.999.1, and this is"),
        ("no index", "site/index.json.sig"),
    ],
)
def test_an_index_that_is_not_trusted(how: str, message: str, fetch: Fetch) -> None:
    index = write_release(SITE)
    data, sig = Path("site/index.json"), Path("site/index.json.sig")
    if how == "no signature":
        sig.unlink()
    elif how == "malformed":
        sig.write_text("zz")
    elif how == "other key":
        sig.write_text(signature.sign(data.read_bytes(), signature.create_key()[0]))
    elif how == "changed":
        data.write_bytes(write_index(dataclasses.replace(index, serial=2)))
    elif how == "expired":
        _signed(index, expires=dt.datetime(2020, 1, 31, tzinfo=dt.timezone.utc))
    elif how == "another version":
        _signed(index, version="0.999.1")
    elif how == "no index":
        data.unlink()
        message = "index.json answers 404"
    with nginx(SITE.absolute()) as url:
        key = [] if how == "no key" else ["--key", PUBLIC]
        told = fetch("--index", f"{url}/index.json", *key, "--arch", "gfx942")
        assert (told.status, told.out) == (1, "")
        assert message in told.err
        assert not TO.exists()
        if how in ("no signature", "malformed", "other key", "changed", "no key"):
            told = fetch("--index", url, "--allow-unsigned", "--arch", "gfx942")
            assert told.status == 0
            assert f"warning: the index {url} is not checked for a signature" in told.err


def test_the_keys_of_the_pinned_index_sign_later_ones(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write_release(SITE, serial=5)
    (tmp_path / "pinned.json").write_bytes(
        write_index(dataclasses.replace(index, serial=4, artifacts=()))
    )
    monkeypatch.setattr(trust, "shipped", lambda _: tmp_path / "pinned.json")
    with nginx(SITE.absolute()) as url:
        assert fetch("--index", url, "--arch", "gfx942").status == 0
        _signed(index, serial=3)
        told = fetch("--index", url, "--arch", "gfx942")
        assert told.status == 1
        assert "has serial 3, and 5 was seen (" in told.err
        (tmp_path / "cache/aotbuild/index-serials.json").unlink()
        told = fetch("--index", url, "--arch", "gfx942")
        assert "has serial 3, and 4 this aotbuild pins" in told.err
        (tmp_path / "cache/aotbuild/index-serials.json").write_text("[]")
        told = fetch("--index", url, "--arch", "gfx942")
        assert "expected serials by key" in told.err
    assert fetch("--index", "site", "--arch", "gfx942").status == 0  # local: trusted as it is
