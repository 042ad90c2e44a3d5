"""A real web server for tests: nginx, as Debian ships it, with a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_CONFIG = """\
daemon off;
worker_processes 1;
{user}
pid {state}/nginx.pid;
error_log {state}/error.log;
events {{ }}
http {{
  access_log {log};
  default_type application/octet-stream;
  client_body_temp_path {state}/body;
  proxy_temp_path {state}/proxy;
  fastcgi_temp_path {state}/fastcgi;
  uwsgi_temp_path {state}/uwsgi;
  scgi_temp_path {state}/scgi;
  server {{
    listen 127.0.0.1:{port}{tls};
    root "{root}";
    location = /-/ready {{ access_log off; return 204; }}
    {extra}
  }}
}}
"""


@contextlib.contextmanager
def nginx(
    root: Path,
    *,
    extra: str = "",
    certificate: tuple[Path, Path] | None = None,
    log: Path | None = None,
) -> Iterator[str]:
    """Serves the files of `root` on 127.0.0.1; gives the URL, without a "/" at the end.

    `extra` goes into nginx's `server` block: `max_ranges 0;`, `limit_rate 10k;`,
    `location /x { return 404; }`. With `certificate`, the files of a certificate and its key, the
    URL is one of https. `log` is where the requests are written, one a line.
    """
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError("these tests need nginx: apt-get install nginx")
    with tempfile.TemporaryDirectory(prefix="nginx-") as state, socket.socket() as listener:
        # nginx is given a socket that listens already, so no other process can take the port.
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        tls = ""
        if certificate:
            tls = f" ssl; ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]}"
        config = Path(state, "nginx.conf")
        user = "user root;" if os.geteuid() == 0 else ""  # it must read what the tests write
        log_file = log or "off"
        config.write_text(
            _CONFIG.format(
                state=state, user=user, log=log_file, port=port, tls=tls, root=root, extra=extra
            )
        )
        command = [program, "-p", state, "-e", f"{state}/error.log", "-c", str(config)]
        environ = {**os.environ, "NGINX": f"{listener.fileno()};"}
        with subprocess.Popen(command, env=environ, pass_fds=(listener.fileno(),)) as process:
            try:
                _wait(process, port, Path(state, "error.log"), secure=certificate is not None)
                yield f"http{'s' if certificate else ''}://127.0.0.1:{port}"
            finally:
                process.terminate()


def _wait(process: subprocess.Popen[bytes], port: int, errors: Path, *, secure: bool) -> None:
    """Until the server answers. A secure one is taken to be ready with its process."""
    deadline = time.monotonic() + 30
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        if process.poll() is not None:
            told = errors.read_text() if errors.exists() else "nothing"
            raise RuntimeError(f"nginx ended with {process.returncode} and said: {told}")
        try:
            if secure:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            else:
                opener.open(f"http://127.0.0.1:{port}/-/ready", timeout=1).close()
        except (OSError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
