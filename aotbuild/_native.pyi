from collections.abc import Mapping, Sequence

from typing_extensions import CapsuleType

UNLIMITED: int
ALIGN_UPPER_LEFT: int
ALIGN_LOWER_RIGHT: int

def version() -> str: ...
def abi_version() -> int: ...
def library_file() -> str: ...
def status_name(status: int) -> str: ...
def device_arch(device_type: int, device_id: int) -> str: ...

class LaunchInfo:
    @property
    def pack(self) -> str: ...
    @property
    def image(self) -> str: ...
    @property
    def workspace_size(self) -> int: ...
    @property
    def workspace_align(self) -> int: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def threads(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def registers(self) -> int: ...

class Library:
    def __init__(
        self, paths: Sequence[str], paths_only: bool, wheel_paths: Sequence[str]
    ) -> None: ...
    def close(self) -> None: ...
    def search_path(self) -> list[tuple[str, str]]: ...
    def describe(self, arch: str | None) -> str: ...
    def launch(
        self,
        family: str,
        op: str,
        inputs: Mapping[str, CapsuleType | None],
        outputs: Mapping[str, CapsuleType | None],
        values: Mapping[str, int | float],
        stream: int,
        workspace: CapsuleType | None,
    ) -> None: ...
    def query(
        self,
        family: str,
        op: str,
        inputs: Mapping[str, CapsuleType | None],
        outputs: Mapping[str, CapsuleType | None],
        values: Mapping[str, int | float],
    ) -> LaunchInfo: ...
    def attention_forward(
        self,
        q: CapsuleType,
        k: CapsuleType,
        v: CapsuleType,
        out: CapsuleType,
        lse: CapsuleType | None,
        scale: float,
        window_left: int,
        window_right: int,
        window_align: int,
        allow_tf32: bool,
        stream: int,
    ) -> None: ...
    def attention_backward(
        self,
        q: CapsuleType,
        k: CapsuleType,
        v: CapsuleType,
        out: CapsuleType,
        lse: CapsuleType,
        dout: CapsuleType,
        dq: CapsuleType,
        dk: CapsuleType,
        dv: CapsuleType,
        scale: float,
        window_left: int,
        window_right: int,
        window_align: int,
        allow_tf32: bool,
        stream: int,
        workspace: CapsuleType | None,
    ) -> None: ...
