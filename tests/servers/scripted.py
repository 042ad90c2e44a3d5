"""A web server that answers as a test says, byte by byte: what no proper server does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

#: What to send for a request, given as its text; the connection is closed after it.
Answer = Callable[[str], bytes]


def response(body: bytes, status: str = "200 OK", **headers: object) -> bytes:
    """A response; `Content_Range="..."` gives the header Content-Range. Headers are only those
    given."""
    lines = [f"HTTP/1.1 {status}", *(f"{n.replace('_', '-')}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


@contextlib.contextmanager
def scripted(answer: Answer) -> Iterator[str]:
    """Answers each request with `answer(request)`; gives the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, answer))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends accept
            thread.join()


def _serve(server: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):  # the client may leave at any time
            connection.settimeout(5)
            request = b""
            while not request.endswith(b"\r\n\r\n") and (got := connection.recv(4096)):
                request += got
            if request:
                connection.sendall(answer(request.decode("ascii")))
                connection.shutdown(socket.SHUT_WR)
