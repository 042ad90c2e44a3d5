"""The pack format: vectors shared with the C++ reader, round trip, and damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import make_packs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotbuild import elf, layout
from aotbuild.errors import PackArchError, PackCorruptError, PackError, PackVersionError
from aotbuild.pack import compress, decode, encode, open_pack, read_code, write_file
from aotbuild.records import Pack
from aotbuild.target import parse_arch

DATA = Path(__file__).parent.parent / "data"
BY_STATUS = {
    "pack_corrupt": PackCorruptError,
    "pack_version": PackVersionError,
    "pack_arch": PackArchError,
}


def read_all(path: Path) -> Pack:
    """Opens a pack and reads every code object, as a thorough user of it would."""
    pack = open_pack(path)
    arch = parse_arch(pack.arch).arch
    for image in pack.images:
        elf.check_arch(read_code(pack, image), arch)
    return pack


@pytest.mark.parametrize("path", sorted(DATA.glob("bad_*.aotpack")), ids=lambda path: path.stem)
def test_bad_vector_is_refused_with_its_status(path: Path) -> None:
    kind = next(error for status, error in BY_STATUS.items() if f"bad_{status}_" in path.name)
    with pytest.raises(kind) as caught:
        read_all(path)
    assert type(caught.value) is kind


@pytest.mark.parametrize("path", sorted(DATA.glob("good*.aotpack")), ids=lambda path: path.stem)
def test_good_vector_opens_and_encodes_to_an_equal_pack(path: Path) -> None:
    pack = read_all(path)
    again = decode(encode(pack))
    assert again == pack
    assert encode(pack) == path.read_bytes()


def test_vectors_are_what_their_generator_writes() -> None:
    """Equal as packs, not as bytes: another zstd may compress otherwise."""
    made = dict(make_packs.vectors())
    assert sorted(made) == sorted(path.name for path in DATA.glob("*.aotpack"))
    good = decode(made["good.aotpack"])
    stored = open_pack(DATA / "good.aotpack")
    assert (good.operators, good.images, good.meta) == (
        stored.operators,
        stored.images,
        stored.meta,
    )


def test_missing_file_is_a_pack_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"none\.aotpack"):
        open_pack(tmp_path / "none.aotpack")


@pytest.mark.parametrize("text", ["caf\u00e9", "tab\there"])
def test_text_that_is_not_printable_ascii_is_refused(text: str) -> None:
    with pytest.raises(PackError, match="printable ASCII"):
        encode(replace(make_packs.good_pack(), producer=text))


def test_unsorted_images_are_refused() -> None:
    pack = make_packs.good_pack()
    with pytest.raises(PackError, match="sorted"):
        encode(replace(pack, images=pack.images[::-1]))


def test_equal_packs_have_equal_bytes_and_identical_code_is_stored_once() -> None:
    pack = make_packs.good_pack()
    shuffled = replace(pack, blobs=dict(reversed(pack.blobs.items())))
    assert encode(pack) == encode(shuffled)
    assert len(pack.images) == 3
    assert len(pack.blobs) == 2


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_gets_past_the_reader_as_another_exception(data: st.DataObject) -> None:
    """Any overwritten field of the index, resealed: a PackError, or a pack that reads whole."""
    good = encode(make_packs.good_pack())
    index_size = int.from_bytes(good[24:32], "little")
    at = data.draw(st.integers(0, index_size - 1))
    new = data.draw(st.binary(min_size=1, max_size=8))
    bad = make_packs.reseal(make_packs.poke(good, at, new)[: len(good)])
    try:
        pack = decode(bad)
        for image in pack.images:
            read_code(pack, image)
    except PackError:
        pass


@given(st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_refused(part: float) -> None:
    data = encode(make_packs.good_pack())
    with pytest.raises(PackCorruptError):
        decode(data[: int(part * len(data))])


def test_write_leaves_the_old_file_and_no_litter_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.aotpack"
    write_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.aotpack"]


def test_header_is_as_documented() -> None:
    data = encode(make_packs.good_pack())
    assert layout.HEADER_SIZE == 288
    assert data[:8] == b"AOTPACK\0"
    assert int.from_bytes(data[16:24], "little") == len(data)


def test_compressed_frame_declares_its_size() -> None:
    blob = compress(b"x" * 1000)
    assert blob.raw_size == 1000
    assert blob.frame[:4] == b"\x28\xb5\x2f\xfd"
