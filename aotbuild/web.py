"""Requests over the network, and what their failures mean: the only user of requests.

Proxies and certificates are set as for any program that uses requests: HTTPS_PROXY, NO_PROXY,
REQUESTS_CA_BUNDLE.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests
import urllib3.exceptions

import aotbuild

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Limits:
    """How patient a download is; seconds and bytes. `rounds` of all mirrors are made that do not
    move the file on by `progress`. Between two, it waits about `first_wait`, twice that, and so
    on. `rate` is the least number of bytes a second, over each `window`.
    """

    connect: float = 10
    read: float = 30
    rounds: int = 5
    first_wait: float = 1
    longest_wait: float = 60
    progress: int = 1 << 20
    rate: float = 1024
    window: float = 30


@dataclass(frozen=True)
class Clock:
    """Time and chance, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random  # noqa: S311  spreads retries, no secret


class TransientError(Exception):
    """A try that failed for a cause that may pass. `wait`: the seconds that the server asks for."""

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class PermanentError(Exception):
    """A try that failed, as any other from the same place would. `untrusted`: what is there is
    not what was published."""

    def __init__(self, message: str, *, untrusted: bool = False) -> None:
        super().__init__(message)
        self.untrusted = untrusted


def shown(location: str) -> str:
    """A URL without the password in it, for messages."""
    return re.sub(r"//[^/@]*@", "//***@", location)


class Web:
    """Connections that are kept between requests."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self.clock = clock
        self._session = requests.Session()
        self._session.max_redirects = 5

    def close(self) -> None:
        """Ends the connections."""
        self._session.close()

    def open(self, url: str, offset: int) -> requests.Response:
        """The response to a request for `url` from byte `offset` on: of status 200 (all of it), or,
        with an offset, 206 (a range) or 416 (no such range)."""
        # identity: an archive is fetched as it is, never packed once more on the way.
        headers = {"Accept-Encoding": "identity", "User-Agent": f"aotbuild/{aotbuild.__version__}"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        timeout = (self.limits.connect, self.limits.read)
        try:
            response = self._session.get(url, headers=headers, stream=True, timeout=timeout)
        except (requests.ConnectionError, requests.Timeout) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise PermanentError(
                    f"has no certificate that is trusted here: {_cause(error)}. "
                    "REQUESTS_CA_BUNDLE names a file of authorities to trust"
                ) from error
            raise TransientError(f"does not answer: {_cause(error)}") from error
        except OSError as error:  # a URL, redirect or file of authorities that cannot work
            raise PermanentError(f"cannot be asked for: {error}") from error
        status = response.status_code
        if status == 200 or (offset and status in (206, 416)):
            return response
        response.close()
        told = f"answers {status} {response.reason or ''}".rstrip()
        if status in (408, 425, 429) or status >= 500:
            raise TransientError(told, _retry_after(response))
        raise PermanentError(told)

    def stream(self, response: requests.Response) -> Iterator[bytes]:
        """The body as it comes. Gives up on a server that has almost stopped."""
        since, count = self.clock.now(), 0
        with response:
            while True:
                try:
                    # read1 gives what has come; read would wait for a whole chunk.
                    chunk = response.raw.read1(_CHUNK, decode_content=False)
                except urllib3.exceptions.HTTPError as error:
                    raise TransientError(f"broke off: {_cause(error)}") from error
                if not chunk:
                    return
                yield chunk
                count += len(chunk)
                passed = self.clock.now() - since
                if passed >= self.limits.window:
                    if count < self.limits.rate * passed:
                        raise TransientError(f"is too slow: {count} bytes in {passed:.0f} s")
                    since, count = self.clock.now(), 0


def _retry_after(response: requests.Response) -> float:
    """Seconds that the server asks to wait; 0 if it does not say."""
    text = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    try:
        then = email.utils.parsedate_to_datetime(text)
        return max(0.0, (then - dt.datetime.now(dt.timezone.utc)).total_seconds())
    except (ValueError, TypeError):  # TypeError: a time without a zone
        return 0


def _cause(error: BaseException) -> str:
    """The last reason in a chain of errors, without the addresses of objects in it."""
    reason: BaseException = error
    while isinstance(inner := getattr(reason, "reason", None) or _first(reason), BaseException):
        reason = inner
    return re.sub(r"^.*object at 0x[0-9a-f]+>: ", "", str(reason)) or type(reason).__name__


def _first(error: BaseException) -> object:
    return next((item for item in error.args if isinstance(item, BaseException)), None)
