"""Sessions. CI runs all of them; `nox -s tests` alone is what most changes need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
COMPILE = PYPROJECT["project"]["optional-dependencies"]["compile"]
JOBS = os.environ.get("AOTBUILD_TEST_JOBS", str(os.cpu_count() or 2))

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "cpp", "tests"]
nox.options.reuse_existing_virtualenvs = True


def _group(name: str) -> list[str]:
    return list(nox.project.dependency_groups(PYPROJECT, name))


def _cpp_sources(*suffixes: str) -> list[str]:
    folders = ("runtime", "tests", "examples")
    return sorted(
        str(path)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Style of Python and C++, and defects that clang-tidy finds."""
    session.install(*_group("lint"), "cmake>=3.21", "ninja")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("clang-format", "--dry-run", "-Werror", *_cpp_sources(".cc", ".h", ".hpp"))
    build = ROOT / "build" / "lint"
    session.run(
        "cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", silent=True,
    )  # fmt: skip
    # The runtime alone: a test file costs a minute each, for GoogleTest's headers.
    session.run(
        "python", str(ROOT / "tests" / "in_parallel.py"), JOBS,
        "clang-tidy", "--quiet", "-p", str(build), "--",
        *sorted(str(path) for path in (ROOT / "runtime" / "src").glob("*.cc")),
    )  # fmt: skip


@nox.session
def types(session: nox.Session) -> None:
    """Static types."""
    session.install(*_group("types"), *PYPROJECT["project"]["dependencies"])
    session.run("mypy")


@nox.session
def cpp(session: nox.Session) -> None:
    """The runtime's tests: plain, under ASan and UBSan, and under TSan; or the presets named."""
    # triton and torch for the headers of CUDA, HIP and DLPack, which the plain build compares.
    session.install("cmake>=3.21", "ninja")
    session.install("--no-deps", *(name for name in _group("test") if name.startswith("torch=")))
    session.install("--no-deps", *(name for name in COMPILE if name.startswith("triton=")))
    for preset in session.posargs or ("dev", "asan", "tsan"):
        session.run("cmake", "--preset", preset, silent=True)
        session.run("cmake", "--build", "--preset", preset, "-j", JOBS)
        session.run("ctest", "--preset", preset, "-j", JOBS)


def _build_wheel(session: nox.Session, dist: Path) -> Path:
    """Builds the wheel as it is published: auditwheel names the oldest glibc that it runs with. It
    would also graft libraries that not every system has; a test sees that there are none."""
    session.install(*_group("wheel"))
    shutil.rmtree(dist, ignore_errors=True)
    built = dist / "built"
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(built), ".")
    repair = ("auditwheel", "repair", "-w", str(dist))
    session.run(*repair, *map(str, built.glob("*.whl")), silent=True)
    shutil.rmtree(built)
    (made,) = dist.iterdir()
    session.run("twine", "check", "--strict", str(made), silent=True)
    return made


@nox.session(default=False)
def wheel(session: nox.Session) -> None:
    """The wheel for publication, in dist/. Installs it, and has it examine this machine."""
    made = _build_wheel(session, ROOT / "dist")
    session.install("--force-reinstall", str(made))
    session.chdir(session.create_tmp())
    session.run("aotbuild", "doctor")


@nox.session
def tests(session: nox.Session) -> None:
    """The Python and CMake tests on the wheel, installed, from another folder."""
    # tmp is relative, and we chdir
    made = _build_wheel(session, Path(session.create_tmp()).resolve() / "dist")
    session.install("--force-reinstall", "--no-deps", str(made))
    session.install(f"aotbuild[compile] @ {made.as_uri()}", *_group("test"))
    session.chdir(session.create_tmp())
    pytest = ("pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-n", JOBS)
    env = {"AOTBUILD_TEST_WHEEL": str(made)}
    # The interpreted kernels have a process of their own: see norecursedirs in pyproject.toml.
    runs = [session.posargs] if session.posargs else [["tests/kernels"], ["tests"]]
    for words in runs:
        named = (str(ROOT / word) if (ROOT / word).exists() else word for word in words)
        session.run(*pytest, *named, env=env)
