"""Real compiles of the launch-contract family: what the code objects take, and what packs say."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from aotbuild import elf
from aotbuild.assemble import build_pack
from aotbuild.compile import cache_key, compile_variant, toolchain
from aotbuild.errors import CompileError, PackArchError, SpecError
from aotbuild.families import load_family
from aotbuild.pack import decode, encode
from aotbuild.plan import Profile, Variant, plan
from aotbuild.records import ArgType, CompiledImage, DescriptorForm, Pack
from aotbuild.spec import SourceKind
from aotbuild.target import Arch, parse_arch

CONTRACT = Path(__file__).parent.parent / "families" / "contract"
SM_90 = parse_arch("sm_90").arch
END = "    candidates=_one,\n)"
OPTIONS = '    candidates=_one,\n    options={"num_wraps": 4},\n)'


@pytest.fixture(scope="module", autouse=True)
def _compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))


def named(name: str) -> Arch:
    return parse_arch(name).arch


def variant(arch: Arch, operator: str, folder: Path = CONTRACT) -> Variant:
    variants = plan(load_family(folder), arch, Profile.STANDARD)
    return next(v for v in variants if v.operator == operator)


def compiled(arch: str, operator: str) -> CompiledImage:
    return compile_variant(CONTRACT, variant(named(arch), operator))


def broken(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the family with one text replaced."""
    copy = folder / "contract"
    shutil.copytree(CONTRACT, copy)
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize(
    ("file", "old", "new", "error", "message"),
    [
        ("kernel.py", "single.to(", "nonsense.to(", CompileError, "nonsense is not defined"),
        ("kernel.py", "import triton\n", "import no_such\n", CompileError, "no_such"),
        ("kernel.py", "def scalars(", "def scalar(", SpecError, "no kernel 'scalars'"),
        ("kernel.py", "double, pair,", "pair, double,", SpecError, "its description declares"),
        ("spec.py", '"small", "i8"', '"tiny", "i8"', SpecError, "its description declares"),
        ("spec.py", f"{END}\n\nCOPY", f"{OPTIONS}\n\nCOPY", SpecError, "num_wraps"),
    ],
)  # fmt: skip
def test_failure_names_the_variant_and_the_cause(
    tmp_path: Path, file: str, old: str, new: str, error: type[Exception], message: str
) -> None:
    folder = broken(tmp_path, file, old, new)
    with pytest.raises(error) as caught:
        compile_variant(folder, variant(SM_90, "scalars", folder))
    assert message in str(caught.value)
    assert "sm_90 contract.scalars/mode=0" in str(caught.value)


def test_too_much_shared_memory_is_refused(tmp_path: Path) -> None:
    folder = broken(tmp_path, "tuned/sm_90.csv", "64,64,4,,", "1024,256,4,,")
    with pytest.raises(CompileError, match="shared memory"):
        compile_variant(folder, variant(SM_90, "copy_tiles", folder))


def test_code_for_another_arch_is_refused() -> None:
    code = compiled("sm_90", "scalars").code
    for other in ("sm_80", "sm_100", "gfx942"):
        with pytest.raises(PackArchError):
            elf.check_arch(code, named(other))


def test_scalars_and_tuples_are_flattened_and_scratch_pointers_are_last() -> None:
    arguments = compiled("sm_90", "scalars").facts.arguments
    assert [argument.name for argument in arguments] == [
        "out", "flag", "small", "big", "half", "single", "double", "first", "second",
        "global_scratch", "profile_scratch",
    ]  # fmt: skip
    assert [argument.type.name for argument in arguments[1:5]] == ["i1", "i8", "i64", "fp16"]


@pytest.mark.parametrize(
    ("arch", "form"),
    [("sm_90", DescriptorForm.TENSOR_MAP), ("gfx1250", DescriptorForm.TDM), ("sm_80", None)],
)
def test_descriptors_expand_as_the_arch_takes_them(arch: str, form: DescriptorForm | None) -> None:
    """`compile_variant` itself compares every argument's width with the code object's."""
    arguments = compiled(arch, "copy_tiles").facts.arguments
    first = arguments[0]
    if form is None:
        assert first.type is ArgType.pointer
        assert [a.type.name for a in arguments[1:7]] == ["i64"] * 4 + ["i1"] * 2
        assert len(arguments) == 11 + 2 + 2
    else:
        assert first.descriptor is not None
        assert first.descriptor.form is form
        assert len(arguments) == 5 + 2 + 2


def test_scratch_cooperative_and_grid_cap_are_recorded() -> None:
    assert compiled("sm_90", "scratch_copy").facts.global_scratch > 0
    assert compiled("gfx942", "scratch_copy").facts.global_scratch == 0
    assert compiled("sm_90", "persistent_scale").facts.cooperative
    assert compiled("gfx942", "persistent_scale").facts.threads == 256


def pack_of(arch: Arch) -> Pack:
    family = load_family(CONTRACT)
    variants = plan(family, arch, Profile.STANDARD)
    images = [(v, compile_variant(CONTRACT, v)) for v in variants]
    return build_pack(family, arch, "standard", images, toolchain(), "aotbuild test")


def test_pack_of_a_family_is_deterministic_and_complete() -> None:
    pack = pack_of(SM_90)
    data = encode(pack)
    assert encode(pack_of(SM_90)) == data
    read = decode(data)
    assert dataclasses.replace(read, pack_id="") == pack
    assert [op.name for op in read.operators] == sorted(op.name for op in read.operators)
    capped = [image for image in read.images if "persistent" in image.name]
    assert sorted(image.grid_cap for image in capped) == [1, 2]
    copy = next(op for op in read.operators if op.name == "copy_tiles")
    assert [row.values for row in copy.rows] == [(2 | 16 << 8,), (2 | 32 << 8,)]
    assert copy.tensors[1].same_dtype_as == 0


def test_no_path_of_this_machine_is_in_the_code() -> None:
    for arch in ("sm_90", "gfx942"):
        code = compiled(arch, "copy_tiles").code
        assert str(Path.home()).encode() not in code
        assert b"kernel.py" not in code


def test_cache_key_depends_on_source_arch_config_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = variant(SM_90, "scalars")
    base = cache_key(CONTRACT, one)
    assert base == cache_key(CONTRACT, one)
    folder = broken(tmp_path, "kernel.py", "tl.store(out + 5, double)", "tl.store(out + 5, 0.0)")
    others = {
        cache_key(folder, one),
        cache_key(CONTRACT, dataclasses.replace(one, arch=named("sm_100"))),
        cache_key(CONTRACT, dataclasses.replace(one, config=(("BLOCK", 2), ("num_warps", 4)))),
    }
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "0")
    others.add(cache_key(CONTRACT, one))
    assert len(others | {base}) == 5


def test_promises_become_hints_and_checks() -> None:
    folder = CONTRACT.parent.parent.parent / "kernels" / "attention"
    if not folder.is_dir():
        from aotbuild.families import builtin_families

        folder = builtin_families() / "attention"
    family = load_family(folder)
    arch = named("gfx942")
    variants = plan(family, arch, Profile.STANDARD)
    aligned = next(v for v in variants if (v.operator, v.promise) == ("forward", "aligned"))
    facts = compile_variant(folder, aligned).facts
    by_name = {argument.name: argument for argument in facts.arguments}
    assert (by_name["q"].divisibility, by_name["q"].range32) == (16, True)
    assert by_name["stride_qs"].divisibility == 8
    assert by_name["head_dim"].divisibility == 8
    assert (by_name["lse"].divisibility, by_name["lse"].range32) == (1, False)
    assert by_name["seqlen_q"].source.kind is SourceKind.SIZE
