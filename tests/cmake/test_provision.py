"""aotbuild_provision() in a host project: what it takes, from where, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from cmake_projects import newest_cmake, run
from hosts import ROOT, Host
from nginx import nginx
from release_folder import Release, archive, pack_bytes, tree

import aotbuild

ARCHES = "-DAOTBUILD_TARGET_ARCH=gfx950;sm_90"
TOOLKITS = ("cuda-12", "rocm-7.1")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host", newest_cmake())


@pytest.fixture(scope="session")
def runtime_archive() -> bytes:
    """A prebuilt runtime: the one of the wheel, which is an install prefix without links."""
    package = Path(aotbuild.__file__).parent
    members = tree(package, names=("include", "lib/cmake", "lib/libaotbuild.so.0", "share"))
    return archive({**members, "lib/libaotbuild.so": Path("libaotbuild.so.0")})


@pytest.fixture
def release(tmp_path: Path, runtime_archive: bytes) -> Release:
    """Packs of three arches and a prebuilt runtime; not published yet, and without sources."""
    made = Release(tmp_path / "release")
    for arch, family in (("gfx942", "vector"), ("gfx950", "vector"), ("gfx950", "other")):
        made.add_pack(arch, family)
    made.add_pack("sm_90")
    made.add_runtime(runtime_archive, toolkits=TOOLKITS)
    return made


def local(release: Release) -> str:
    """The option that makes a release's folder serve, with its index."""
    release.publish()
    return f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={release.folder}"


def from_index(release: Release, *mirrors: str) -> str:
    """The option that names the index alone, so that files come from its mirrors."""
    return f"-DARGUMENTS=INDEX;{release.publish(*mirrors)}"


def toolkit(folder: Path, *, hip: tuple[int, int] | None = None, cuda: int | None = None) -> Path:
    """The headers of a toolkit, as far as they say its version."""
    (folder / "include" / "hip").mkdir(parents=True, exist_ok=True)
    if hip:
        text = f"#define HIP_VERSION_MAJOR {hip[0]}\n#define HIP_VERSION_MINOR {hip[1]}\n"
        (folder / "include" / "hip" / "hip_version.h").write_text(text)
    if cuda:
        (folder / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {cuda}\n")
    return folder


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-DARGUMENTS=ARCHES;gfx950",), "unknown argument 'ARCHES;gfx950'; it takes ARCH"),
        ((), "no arch is named, so no pack can be chosen. Set AOTBUILD_TARGET_ARCH"),
        (("-DAOTBUILD_TARGET_ARCH= ,; ",), "no arch is named"),
        (("-DCMAKE_CUDA_ARCHITECTURES=OFF",), "no arch is named"),
        (("-DAOTBUILD_TARGET_ARCH=gfx11-generic",), "gfx11-generic: skipped, because it is a gen"),
        (("-DAOTBUILD_TARGET_ARCH=gfx1100",), "gfx1100: skipped, because"),
        ((ARCHES, "-DARGUMENTS=FAMILIES;gemm"), "FAMILIES names 'gemm'; "),
        ((ARCHES, "-DAOTBUILD_LOCAL_ARCHIVE_DIR=releases"), "is 'releases'; expected the absolute"),
        ((ARCHES, "-DAOTBUILD_INSTALLED_PREFIX=/nowhere"), "is '/nowhere'; expected the absolute"),
        ((ARCHES, "-DAOTBUILD_MIRROR=mirror.example"), "names 'mirror.example'; expected a URL"),
        (
            (ARCHES, "-DAOTBUILD_STALL_TIMEOUT=soon"),
            "AOTBUILD_STALL_TIMEOUT is 'soon'; expected seconds",
        ),
        ((ARCHES, "-DARGUMENTS=INDEX;https://x.example/i.json"), "INDEX_SHA256 must say what to"),
        ((ARCHES, "-DARGUMENTS=INDEX;none.json"), "none.json, which does not exist"),
        ((ARCHES, f"-DARGUMENTS=INDEX_SHA256;{'12' * 32}"), f"expected {'12' * 32}, which INDEX_"),
    ],
)
def test_wrong_words(host: Host, release: Release, options: tuple[str, ...], message: str) -> None:
    assert message in host.configure(local(release), *options, check=False)
    assert not (host.work / "prefix").exists()


def test_without_an_index_there_are_no_packs(host: Host) -> None:
    assert "no index.json, which names the packs" in host.configure(ARCHES, check=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(format=2), "format is '2'; expected 1"),
        (lambda index: index["artifacts"][0].update(sha256="0" * 64), "expected a hash, not a pl"),
        (lambda index: index["artifacts"][0].update(sha256="ab"), "expected a hash"),
        (lambda index: index["artifacts"][0].update(sha256="TODO"), "expected a SHA-256"),
        (lambda index: index["artifacts"][0].pop("sha256"), "sha256"),
        (lambda index: index["artifacts"][0].update(sha256="01" * 32), "expected a hash, not a pl"),
        (lambda index: index["artifacts"][0].update(sha256=f"{'d' * 16}{'0123' * 12}"), "not a pl"),
        (lambda index: index["artifacts"][0].update(size=0), "expected a number of bytes"),
        (lambda index: index["artifacts"][0].update(arch="gfx906"), "one of the index's arches"),
        (lambda index: index["artifacts"].append(index["artifacts"][0]), "is there twice"),
        (lambda index: index["artifacts"][0].update(file="../x"), "expected a file's name"),
        (lambda index: index["artifacts"][0].update(kind="plugin"), "expected a known kind"),
        (lambda index: index["artifacts"][0].update(arch="gfx950;x"), "a semicolon in"),
        (lambda index: index.update(mirrors=["ftp://x"]), "mirror 'ftp://x'; expected a URL"),
        (lambda index: index.pop("arches"), "arches"),
    ],
)
def test_a_wrong_index(
    host: Host, release: Release, change: Callable[[dict[str, object]], object], message: str
) -> None:
    index = json.loads(release.publish().read_text())
    change(index)
    (release.folder / "index.json").write_text(json.dumps(index))
    said = host.configure(ARCHES, f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={release.folder}", check=False)
    assert message in said
    assert not (host.work / "prefix").exists()


@pytest.mark.parametrize(
    "members",
    [
        {"/etc/aotbuild": b"x"},
        {"gfx950/../../vector.aotpack": b"x"},
        {"gfx950/vector.aotpack": b"x", "gfx950/more.aotpack": b"x"},
        {"gfx942/vector.aotpack": b"x"},
        {"gfx950/vector.aotpack": Path("/etc/passwd")},
        {},
    ],
)
def test_archives_of_packs_that_hold_something_else(
    host: Host, tmp_path: Path, runtime_archive: bytes, members: dict[str, bytes | Path]
) -> None:
    release = Release(tmp_path / "release")
    release.add_pack("gfx950", data=archive(members))
    release.add_runtime(runtime_archive, toolkits=TOOLKITS)
    said = host.configure(local(release), "-DAOTBUILD_TARGET_ARCH=gfx950", check=False)
    assert "is refused, it has expected gfx950/vector.aotpack alone" in said or "has a link" in said
    assert host.images == set()


def test_archives_of_a_runtime_stay_inside(
    host: Host, tmp_path: Path, runtime_archive: bytes
) -> None:
    for members in ({"lib/x": Path("../../x")}, {"../x": b""}, {"lib/x": Path("/etc")}):
        release = Release(tmp_path / "release")
        release.add_runtime(archive(members), toolkits=TOOLKITS)
        said = host.configure(local(release), "-DAOTBUILD_NO_IMAGES=ON", check=False)
        assert "leads out of it" in said


def test_packs_of_another_contract(host: Host, tmp_path: Path, runtime_archive: bytes) -> None:
    release = Release(tmp_path / "release")
    release.add_pack("gfx950", contracts={"attention.forward": 2})
    release.add_runtime(runtime_archive, toolkits=TOOLKITS)
    said = host.configure(local(release), "-DAOTBUILD_TARGET_ARCH=gfx950", check=False)
    assert "has contract 2 of attention.forward, the runtime calls 1" in said


def test_a_second_call_with_other_arguments(host: Host, release: Release) -> None:
    again = "cmake_language(DEFER CALL aotbuild_provision ARCH gfx942)"
    host.command()
    project = host.folder / "source" / "CMakeLists.txt"
    project.write_text(f"{project.read_text()}\naotbuild_provision()\n{again}\n")
    said = host.configure(local(release), ARCHES, check=False)
    assert "called before in this build, with other arguments: '', now 'ARCH;gfx942'" in said


# ---- What is taken -------------------------------------------------------------------------------

WITH_SOURCE = ("-DAOTBUILD_FROM_SOURCE=ON",)


@pytest.mark.parametrize("version", ["oldest", "newest"])
def test_the_whole_way(
    tmp_path: Path, release: Release, version: str, request: pytest.FixtureRequest
) -> None:
    """From a server; built, run, configured again, with another selection, installed."""
    cmake = request.getfixturevalue("oldest_cmake") if version == "oldest" else newest_cmake()
    host = Host(tmp_path / "host", cmake)
    log = tmp_path / "access.log"
    with nginx(release.folder, log=log) as url:
        index = from_index(release, url)
        said = host.configure(index, "-DAOTBUILD_TARGET_ARCH=gfx950, 9.0a;gfx11-generic gfx1100")
        assert "gfx950: gfx950 (stable, other 1 KiB, vector 1 KiB)" in said
        assert "9.0a: sm_90 (stable, vector 1 KiB)" in said
        assert "gfx11-generic: skipped, because it is a generic target" in said
        assert f"gfx1100: skipped, because {release.folder}/index.json has no packs for it" in said
        assert "no ROCm in ROCM_PATH=/nowhere, no CUDA toolkit in" in said
        assert "nothing to match" in said
        assert "result: prebuilt 0.1.0 [gfx950;sm_90]" in said
        packs = {"gfx950/other.aotpack", "gfx950/vector.aotpack", "sm_90/vector.aotpack"}
        assert host.images == packs
        text = host.run("gfx950")
        assert f"{host.work}/prefix/share/aotbuild/images/gfx950/vector.aotpack: 3 images" in text
        asked = log.read_text()
        assert "gfx942" not in asked

        host.configure()
        assert log.read_text() == asked  # nothing is fetched again

        host.configure("-DAOTBUILD_TARGET_ARCH=gfx942;sm_90")
        assert host.images == {"gfx942/vector.aotpack", "sm_90/vector.aotpack"}
        assert "libaotbuild" not in log.read_text().removeprefix(asked)

    files = host.install(tmp_path / "prefix")
    assert files == {
        "bin/host",
        "lib/libaotbuild.so.0",
        "lib/aotbuild.images/gfx942/vector.aotpack",
        "lib/aotbuild.images/sm_90/vector.aotpack",
    }
    shutil.rmtree(host.folder)
    text = run(tmp_path / "prefix" / "bin" / "host", "sm_90").stdout
    assert f"{tmp_path}/prefix/lib/aotbuild.images/sm_90/vector.aotpack: 3 images" in text


def test_components_and_destination(host: Host, release: Release, tmp_path: Path) -> None:
    words = "DESTINATION;pkg/lib;COMPONENT_RUNTIME;rt;COMPONENT_IMAGES;packs;ARCH;sm90"
    host.configure(local(release), f"-DARGUMENTS={words}")
    runtime = host.install(tmp_path / "runtime", "--component", "rt")
    assert runtime == {"pkg/lib/libaotbuild.so.0"}
    packs = host.install(tmp_path / "packs", "--component", "packs")
    assert packs == {"pkg/lib/aotbuild.images/sm_90/vector.aotpack"}
    host.configure("-DAOTBUILD_BUNDLE=OFF")
    assert host.install(tmp_path / "linked") == {"bin/host"}


def test_packs_of_another_release_take_the_place_of_those_before(
    host: Host, release: Release, tmp_path: Path
) -> None:
    """In a build tree and an installed tree that are used again; members have no times."""
    host.configure(local(release), "-DAOTBUILD_TARGET_ARCH=gfx950;gfx942")
    host.install(tmp_path / "prefix")
    time.sleep(1.1)  # CMake's install takes times less than a second apart as equal
    other = Release(tmp_path / "other")
    other.add_pack("gfx950", note="of the other release")
    other.artifacts.append(release.artifacts[-1])
    shutil.copy(release.folder / release.artifacts[-1].file, other.folder)
    host.configure(local(other), "-DAOTBUILD_TARGET_ARCH=gfx950")
    assert host.images == {"gfx950/vector.aotpack"}
    host.install(tmp_path / "prefix")
    installed = tmp_path / "prefix" / "lib" / "aotbuild.images" / "gfx950" / "vector.aotpack"
    assert installed.read_bytes() == pack_bytes("gfx950", note="of the other release")


def test_nothing_is_written_outside_the_build_tree(host: Host, release: Release) -> None:
    """And no tool is needed but CMake, Ninja, the compiler and its linker."""
    host.command()
    tools = host.folder / "tools"
    tools.mkdir()
    for name in ("ninja", "c++", "cc", "as", "ld"):
        found = shutil.which(name, path=f"{host.cmake.parent}:/usr/local/bin:/usr/bin:/bin")
        assert found, name
        (tools / name).symlink_to(found)

    def snapshot() -> dict[Path, tuple[int, int]]:
        kept = (path for path in host.folder.rglob("*") if host.build_folder not in path.parents)
        return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in kept if p != host.build_folder}

    before = snapshot()
    folder_times = [path.stat().st_mtime_ns for path in (host.folder / "home", release.folder)]
    host.configure(
        local(release), ARCHES, environment={"PATH": str(tools), "TMPDIR": str(tools / "none")}
    )
    after = [path.stat().st_mtime_ns for path in (host.folder / "home",)]
    assert snapshot() == before
    assert after == folder_times[:1]


@pytest.mark.parametrize(
    ("options", "environment", "arches"),
    [
        (("-DARGUMENTS=ARCH;gfx942", ARCHES), {}, "gfx942"),
        ((), {"AOTBUILD_TARGET_ARCH": "sm_90", "PYTORCH_ROCM_ARCH": "gfx950"}, "sm_90"),
        ((), {"PYTORCH_ROCM_ARCH": "gfx942;gfx950:xnack-"}, "gfx942;gfx950"),
        (("-DCMAKE_HIP_ARCHITECTURES=gfx950",), {}, "gfx950"),
        ((), {"TORCH_CUDA_ARCH_LIST": "8.0 9.0+PTX"}, "sm_90"),
        (("-DCMAKE_CUDA_ARCHITECTURES=80-virtual;90a-real",), {}, "sm_90"),
        (("-DCMAKE_CUDA_ARCHITECTURES=all",), {}, "sm_90"),
        (("-DAOTBUILD_TARGET_ARCH=all",), {}, "gfx942;gfx950;sm_90"),
        (("-DAOTBUILD_TARGET_ARCH=all-major",), {}, "sm_90"),
    ],
)
def test_places_that_name_arches(
    host: Host, release: Release, options: tuple[str, ...], environment: dict[str, str], arches: str
) -> None:
    said = host.configure(local(release), *options, environment=environment)
    assert f"result: prebuilt 0.1.0 [{arches}]" in said


def test_one_family(host: Host, release: Release) -> None:
    host.configure(local(release), "-DARGUMENTS=FAMILIES;other", "-DAOTBUILD_TARGET_ARCH=gfx950")
    assert host.images == {"gfx950/other.aotpack"}


def test_a_family_that_an_arch_lacks_is_told(host: Host, release: Release) -> None:
    said = host.configure(local(release), ARCHES)
    assert "sm_90: nothing of other is published for it" in said
    assert "gfx950: nothing" not in said
    assert "AOTBUILD_STRICT_ARCH is set" in host.configure("-DAOTBUILD_STRICT_ARCH=1", check=False)


def test_a_skipped_arch_is_an_error_on_request(host: Host, release: Release) -> None:
    options = (local(release), "-DAOTBUILD_TARGET_ARCH=gfx950;gfx1030")
    assert "result: prebuilt 0.1.0 [gfx950]" in host.configure(*options)
    said = host.configure("-DAOTBUILD_STRICT_ARCH=ON", check=False)
    assert "AOTBUILD_STRICT_ARCH is set, and of AOTBUILD_TARGET_ARCH (gfx950;gfx1030)" in said
    assert "gfx1030: skipped, because it is an unknown arch" in said


def test_the_gpus_of_this_machine(host: Host, release: Release) -> None:
    tools = host.folder / "tools"
    tools.mkdir(parents=True)
    said = {"rocm_agent_enumerator": "gfx000\ngfx942:sramecc+:xnack-\n", "nvidia-smi": "9.0\n9.0\n"}
    for name, output in said.items():
        (tools / name).write_text(f"#!/bin/sh\nprintf '{output}'\n")
        (tools / name).chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    native = "-DAOTBUILD_TARGET_ARCH=native"
    text = host.configure(local(release), native, environment=path)
    assert "result: prebuilt 0.1.0 [gfx942;sm_90]" in text
    for name in said:
        (tools / name).write_text("#!/bin/sh\nexit 9\n")
    text = host.configure(check=False, environment=path)
    assert "native: skipped, because none of amdgpu-arch, rocm_agent_enumerator and" in text


def test_no_images(host: Host, release: Release) -> None:
    said = host.configure(local(release), "-DAOTBUILD_NO_IMAGES=ON")
    assert "no packs; the runtime will search for them where it runs" in said
    assert host.images == set()
    host.run()


# ---- Servers -------------------------------------------------------------------------------------


def test_files_come_from_the_mirror_that_has_them(
    host: Host, release: Release, tmp_path: Path
) -> None:
    """The first has none, the second wrong ones, the third is slow and knows no ranges."""
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for artifact in release.artifacts:
        (wrong / artifact.file).write_bytes(b"?" * artifact.size)
    (tmp_path / "empty").mkdir()
    with (
        nginx(tmp_path / "empty") as empty,
        nginx(wrong) as other,
        nginx(release.folder, extra="max_ranges 0; limit_rate 500k;") as slow,
    ):
        mirrors = f"-DAOTBUILD_MIRROR={empty};{other}"
        paths = f"{mirrors};{tmp_path}/nothing"
        said = host.configure(from_index(release, slow), ARCHES, paths)
        assert "result: prebuilt 0.1.0 [gfx950;sm_90]" in said

        shutil.rmtree(host.build_folder)
        user = mirrors.replace("http://", "http://user:secret@")
        said = host.configure(
            from_index(release, "https://127.0.0.1:1"),
            "-DAOTBUILD_TARGET_ARCH=sm_90",
            user,
            *WITH_SOURCE,
            check=False,
        )
    name = release.artifacts[-2].file
    assert f"{empty}/{name}: HTTP status 404" in said
    assert f"{other}/{name}: what came has SHA-256" in said
    assert f"https://127.0.0.1:1/{name}: " in said
    assert "secret" not in said
    assert list(host.work.rglob("*.part")) == []


@contextmanager
def cutting_server(folder: Path, cuts: int) -> Iterator[str]:
    """Ends the first connections for every file after half of it."""
    asked: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = (folder / self.path.lstrip("/")).read_bytes()
            asked[self.path] = asked.get(self.path, 0) + 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if asked[self.path] > cuts else data[: len(data) // 2])

        def log_message(self, *_: object) -> None:
            pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_cut_connection_is_tried_again(host: Host, release: Release) -> None:
    with cutting_server(release.folder, cuts=1) as url:
        host.configure(from_index(release, url), "-DAOTBUILD_TARGET_ARCH=sm_90")
    assert host.images == {"sm_90/vector.aotpack"}


def test_a_server_that_stalls_is_given_up(host: Host, release: Release) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        silent = f"http://127.0.0.1:{server.server_address[1]}"  # it accepts, and says nothing
        said = host.configure(
            from_index(release, silent), "-DAOTBUILD_TARGET_ARCH=sm_90", *WITH_SOURCE,
            "-DAOTBUILD_STALL_TIMEOUT=1", check=False,
        )  # fmt: skip
    assert f"{silent}/{release.artifacts[3].file}: Timeout was reached" in said


def test_the_index_from_a_server(host: Host, release: Release) -> None:
    with nginx(release.folder) as url:
        sha256 = hashlib.sha256(release.publish(url).read_bytes()).hexdigest()
        wrong = f"-DARGUMENTS=INDEX;{url}/index.json;INDEX_SHA256;{'12' * 32}"
        assert "what came has SHA-256" in host.configure(ARCHES, wrong, check=False)
        right = f"-DARGUMENTS=INDEX;{url}/index.json;INDEX_SHA256;{sha256}"
        host.configure(ARCHES, right)
    host.configure("-DAOTBUILD_OFFLINE=ON")  # all of it is there


def test_a_full_disk(host: Host, release: Release) -> None:
    """A limit on file size fails writes as a full disk does; one more megabyte does not help."""
    release.add_pack("gfx942", "large", data=os.urandom(3 << 20))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    with nginx(release.folder) as url:
        said = host.configure(
            from_index(release, url), "-DAOTBUILD_TARGET_ARCH=gfx942", check=False, preexec=limit
        )
    assert "is the disk full?" in said
    assert host.images == set()
    assert list(host.work.rglob("*.part")) == []


def test_two_at_once(host: Host, release: Release) -> None:
    """In one build tree, once CMake has found the compiler; that part of it is not made for two."""
    host.configure(from_index(release), check=False)
    with nginx(release.folder, extra="limit_rate 500k;") as url:
        processes = [host.start(from_index(release, url), ARCHES) for _ in range(2)]
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output
    assert len(host.images) == 3
    assert not (host.work / "images.part").exists()


def test_offline_lists_what_is_missing(host: Host, release: Release, tmp_path: Path) -> None:
    offline = ("-DAOTBUILD_OFFLINE=ON", f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={tmp_path / 'here'}")
    shutil.copytree(release.folder, tmp_path / "here")
    gone = [release.artifacts[i] for i in (1, 3)]
    for artifact in gone:
        (tmp_path / "here" / artifact.file).unlink()
    with nginx(release.folder) as url:
        said = host.configure(from_index(release, url), ARCHES, *offline, check=False)
        for artifact in gone:
            assert f"{artifact.file} ({artifact.size} bytes, SHA-256 {artifact.sha256})" in said
            assert f"{tmp_path}/here/{artifact.file} does not exist" in said
        assert "AOTBUILD_OFFLINE is set: no mirror was asked." in said
        for artifact in gone:
            shutil.copy(release.folder / artifact.file, tmp_path / "here")
        host.configure()


def test_a_local_file_of_another_release_is_not_used(
    host: Host, release: Release, tmp_path: Path
) -> None:
    name = release.artifacts[3].file
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / name).write_bytes(b"of another release")
    here = f"-DAOTBUILD_LOCAL_ARCHIVE_DIR={tmp_path / 'here'}"
    with nginx(release.folder) as url:
        said = host.configure(from_index(release, url), "-DAOTBUILD_TARGET_ARCH=sm_90", here)
    assert f"{tmp_path}/here/{name} has 18 bytes, expected {release.artifacts[3].size}" in said
    assert host.images == {"sm_90/vector.aotpack"}


# ---- Which runtime -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hip", "cuda", "arches", "why"),
    [
        ((7, 1), None, "gfx950", ""),
        (None, 12080, "sm_90", ""),
        ((7, 1), 13000, "gfx950", ""),  # CUDA's arches are not wanted
        ((7, 2), None, "gfx950", "made for cuda-12, rocm-7.1; installed is rocm-7.2 (ROCm 7.2 in"),
        ((6, 1), None, "gfx950;sm_90", "installed is rocm-6.1"),
        (None, 13000, "sm_90", "installed is cuda-13 (CUDA 13.0 in"),
        ((7, 1), 11080, "gfx950;sm_90", "installed is cuda-11 (CUDA 11.8 in"),
    ],
)
def test_a_prebuilt_runtime_matches_exactly_or_not_at_all(
    host: Host,
    release: Release,
    tmp_path: Path,
    hip: tuple[int, int] | None,
    cuda: int | None,
    arches: str,
    why: str,
) -> None:
    folder = toolkit(tmp_path / "toolkit", hip=hip, cuda=cuda)
    roots = (f"-DROCM_PATH={folder}", f"-DCUDAToolkit_ROOT={folder}")
    words = (local(release), f"-DAOTBUILD_TARGET_ARCH={arches}", *roots)
    said = host.configure(*words, check=not why)
    if why:  # and from source it cannot be built here, since no source is given
        assert "the source of aotbuild: name its folder by SOURCE_DIR" in said
        assert why in said
    else:
        assert "result: prebuilt" in said


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cpu": "riscv64"}, "made for riscv64, the processor is "),
        ({"libc": "glibc-9.9"}, "needs glibc-9.9, the libc is glibc-2."),
    ],
)
def test_a_runtime_for_another_machine(
    host: Host, release: Release, change: dict[str, str], why: str
) -> None:
    release.artifacts[-1] = replace(release.artifacts[-1], **change)  # type: ignore[arg-type]
    assert why in host.configure(local(release), ARCHES, check=False)


def test_a_runtime_that_does_not_link(host: Host, tmp_path: Path, runtime_archive: bytes) -> None:
    release = Release(tmp_path / "release")
    package = Path(aotbuild.__file__).parent
    members = tree(package, names=("include", "lib/cmake", "share"))
    release.add_runtime(archive({**members, "lib/libaotbuild.so": b"no ELF"}), toolkits=TOOLKITS)
    said = host.configure(local(release), "-DAOTBUILD_NO_IMAGES=ON", check=False)
    assert "does not link:" in said
    assert "the source of aotbuild: name its folder by SOURCE_DIR" in said


def test_all_that_a_source_build_lacks_is_told_at_once(host: Host, release: Release) -> None:
    hidden = "-DCMAKE_IGNORE_PATH=/usr/include;/usr/lib/x86_64-linux-gnu;/lib/x86_64-linux-gnu"
    said = host.configure(
        local(release), ARCHES, *WITH_SOURCE, hidden, "-DCMAKE_CXX_FLAGS=-nostdinc++", check=False,
        environment={"PKG_CONFIG_LIBDIR": "/nowhere"},
    )  # fmt: skip
    assert "the source of aotbuild: name its folder by SOURCE_DIR" in said
    assert "a C++17 compiler with its standard library (Debian, Ubuntu: g++" in said
    assert "libzstd with its header, to read packs (Debian, Ubuntu: libzstd-dev" in said


@pytest.fixture(scope="session")
def debian_hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's packages of HIP, unpacked: headers, and a library that loads."""
    folder = tmp_path_factory.mktemp("hip")
    packages = (
        "libamdhip64-dev", "libamdhip64-5", "libamd-comgr2", "libhsa-runtime64-1", "libhsakmt1",
        "libhiprtc-builtins5", "libllvm15", "libnuma1",
    )  # fmt: skip
    command = ["apt-get", "download", "-q", *packages]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        run("dpkg", "-x", package, folder)
        package.unlink()
    return folder / "usr"


def test_source_build_against_debians_hip(
    tmp_path: Path, release: Release, oldest_cmake: Path, debian_hip: Path
) -> None:
    """HIP 5.2, which no prebuilt runtime matches; gcc and GNU ld, the sources as they lie here. The
    host's packaging has set DESTDIR. The library is then found, and says that there is no GPU.
    """
    host = Host(tmp_path / "host", oldest_cmake)
    said = host.configure(
        local(release), "-DAOTBUILD_TARGET_ARCH=gfx950", f"-DROCM_PATH={debian_hip}",
        f"-DARGUMENTS=SOURCE_DIR;{ROOT}", "-DCMAKE_CXX_COMPILER=g++",
        environment={"DESTDIR": str(tmp_path / "elsewhere")},
    )  # fmt: skip
    assert "building the runtime from source" in said
    assert re.search(r"made for cuda-12, rocm-7\.1; installed is rocm-5\.2 \(ROCm 5\.2 in", said)
    assert "result: source 0.1.0 [gfx950]" in said
    assert not (tmp_path / "elsewhere").exists()
    manifest = json.loads((host.work / "prefix/share/aotbuild/runtime.json").read_text())
    assert manifest["toolkits"] == ["rocm-5.2"]
    libraries = debian_hip / "lib" / "x86_64-linux-gnu"
    text = host.run("gfx950", libraries=libraries)
    assert "images/gfx950/vector.aotpack: 3 images" in text
    assert re.search(r"device type 10: AOTBUILD_ERROR_DRIVER .*hipErrorNoDevice", text)

    built = (host.work / "build.log").stat().st_mtime_ns
    assert "result: source" in host.configure()
    assert (host.work / "build.log").stat().st_mtime_ns == built  # nothing is built again


@pytest.fixture(scope="session")
def cuda_13(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's own headers of CUDA 13, from its Python package."""
    folder = tmp_path_factory.mktemp("cuda")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    run(*command, "nvidia-cuda-runtime>=13,<14")
    return folder / "nvidia" / "cu13"


def test_source_build_against_cuda_13(
    host: Host, tmp_path: Path, release: Release, cuda_13: Path
) -> None:
    """The prebuilt runtime matches, but has gone from the mirror; clang and lld, the sources from
    the mirror. No driver is here, and that is what the program says.
    """
    runtime = release.artifacts[-1]
    release.artifacts[-1] = replace(runtime, toolkits=("cuda-13",))
    release.add_source(ROOT)
    (release.folder / runtime.file).unlink()
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    options = (
        "-DAOTBUILD_TARGET_ARCH=sm_90", f"-DCUDAToolkit_ROOT={cuda_13}",
        f"-DCMAKE_CXX_COMPILER={clang}", "-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld",
    )  # fmt: skip
    log = tmp_path / "access.log"
    with nginx(release.folder, log=log) as url:
        said = host.configure(from_index(release, url), *options)
        assert "matches this machine, but cannot be used, so it will be built from source" in said
        assert f"{url}/{runtime.file}: HTTP status 404" in said
        assert "result: source 0.1.0 [sm_90]" in said
        asked = log.read_text()
        host.configure()
        assert log.read_text() == asked
    manifest = json.loads((host.work / "prefix/share/aotbuild/runtime.json").read_text())
    assert manifest["toolkits"] == ["cuda-13"]
    built = host.work / "build/runtime/libaotbuild.so"  # the installed one is stripped
    comment = run("readelf", "-p", ".comment", built).stdout
    assert "LLD" in comment
    assert "clang" in comment
    text = host.run("sm_90")
    assert "images/sm_90/vector.aotpack: 3 images" in text
    assert "device type 2: AOTBUILD_ERROR_NO_DRIVER" in text


def test_a_source_build_that_fails_shows_why(host: Host, release: Release, tmp_path: Path) -> None:
    source = tmp_path / "aotbuild"
    for name in ("CMakeLists.txt", "cmake", "images", "pyproject.toml", "runtime"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    for path in (source / "runtime" / "src").glob("*.cc"):
        path.write_text("#error this does not compile\n")
    words = f"-DARGUMENTS=SOURCE_DIR;{source}"
    said = host.configure(local(release), ARCHES, *WITH_SOURCE, words, check=False)
    assert "the runtime does not build from source (status 1). The end of" in said
    assert "#error this does not compile" in said
    assert not (host.work / "prefix").exists()


# ---- An installed aotbuild -----------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A prefix with a runtime and packs, as a distribution has them."""
    prefix = tmp_path / "usr"
    package = Path(aotbuild.__file__).parent
    for name in ("include", "lib", "share"):
        shutil.copytree(package / name, prefix / name)
    for arch in ("gfx942", "gfx950"):
        pack = prefix / "share" / "aotbuild" / "images" / arch / "vector.aotpack"
        pack.parent.mkdir(parents=True)
        pack.write_bytes(pack_bytes(arch))
    return prefix


def test_an_installed_aotbuild_is_linked_and_not_copied(
    host: Host, installed: Path, tmp_path: Path
) -> None:
    prefix = f"-DAOTBUILD_INSTALLED_PREFIX={installed}"
    said = host.configure(prefix)
    assert f"result: installed 0.1.0 [gfx942;gfx950] {installed}/share/aotbuild/images" in said
    assert f"{installed}/share/aotbuild/images/gfx950/vector.aotpack" in host.run("gfx950")
    assert host.install(tmp_path / "linked") == {"bin/host"}
    host.configure("-DAOTBUILD_BUNDLE=ON", "-DAOTBUILD_TARGET_ARCH=gfx950;gfx90a")
    assert host.install(tmp_path / "bundled") == {
        "bin/host",
        "lib/libaotbuild.so.0",
        "lib/aotbuild.images/gfx950/vector.aotpack",
    }
    said = host.configure("-DAOTBUILD_TARGET_ARCH=gfx90a", check=False)
    assert "gfx90a: skipped, because" in said
    assert "result: installed 0.1.0 []" in host.configure("-DAOTBUILD_NO_IMAGES=ON")


def test_the_installed_prefix_is_the_only_one(
    host: Host, installed: Path, release: Release, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    said = host.configure(
        f"-DAOTBUILD_INSTALLED_PREFIX={empty}", f"-DCMAKE_PREFIX_PATH={installed}", check=False
    )
    assert f"no package aotbuild in {empty}: there is none" in said
    index = json.loads(release.publish().read_text())
    index["version"] = "0.2.0"
    (release.folder / "index.json").write_text(json.dumps(index))
    prefix = f"-DAOTBUILD_INSTALLED_PREFIX={installed}"
    words = f"-DARGUMENTS=INDEX;{release.folder}/index.json"
    said = host.configure(prefix, words, check=False)
    assert f"no package aotbuild 0.2 in {installed}: it has version 0.1.0" in said


def test_another_aotbuild_is_not_linked_in_its_place(
    host: Host, installed: Path, release: Release
) -> None:
    text = host.folder / "source" / "CMakeLists.txt"
    host.command()
    found = f"find_package(aotbuild CONFIG REQUIRED PATHS {installed} NO_DEFAULT_PATH)"
    call = "\naotbuild_provision("
    text.write_text(text.read_text().replace(call, f"\n{found}{call}"))
    said = host.configure(local(release), ARCHES, check=False)
    assert f"target aotbuild::runtime exists already, of {installed}/lib/libaotbuild.so.0" in said
    host.configure(f"-DAOTBUILD_INSTALLED_PREFIX={installed}")


# ---- This project's own install ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wheel", "folder"), [("OFF", "share/aotbuild/images"), ("ON", "lib/aotbuild.images")]
)
def test_this_projects_own_install_brings_packs(
    release: Release, tmp_path: Path, wheel: str, folder: str
) -> None:
    build = tmp_path / "build"
    run(
        newest_cmake(), "-G", "Ninja", "-S", ROOT, "-B", build, f"-DAOTBUILD_WHEEL={wheel}",
        local(release), "-DAOTBUILD_TARGET_ARCH=gfx950, sm_90",
    )  # fmt: skip
    run(newest_cmake(), "--install", build, "--prefix", tmp_path / "p", "--component", "Images")
    packs = {p.relative_to(tmp_path / "p").as_posix() for p in (tmp_path / "p").rglob("*.aotpack")}
    names = ("gfx950/other", "gfx950/vector", "sm_90/vector")
    assert packs == {f"{folder}/{name}.aotpack" for name in names}
