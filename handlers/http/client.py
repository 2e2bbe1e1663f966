"""Requests to one server, and the meaning of its responses."""

from __future__ import annotations

import base64
import contextlib
import math
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote

import httpx

from handlers.api import TargetUnavailable
from handlers.options.shared import TlsOptions

_FAULT_BYTES = 1 << 16
"""Bytes read of a response of which only the status matters."""
_SHOWN_CHARACTERS = 400
_MOST_BYTES = 1 << 30
_MOST_SECONDS = 60.0
"""Time limit for a whole response. The timeout applies instead if it is longer."""


class AnswerTooLarge(Exception):
    """The response is larger than the caller allows."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    reason: str
    """The reason phrase of the status."""
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    """The unchanged body. It may repeat a secret that was sent."""
    secrets: Sequence[str] = field(repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The beginning of the content, in one line, without secrets."""
        # Remove secrets before the text is cut: a cut secret would not be recognized.
        start = _cleaned(self.content[:_FAULT_BYTES].decode("utf-8", "replace"), self.secrets)
        return " ".join(start.split())[:_SHOWN_CHARACTERS]


class HttpClient:
    """Connections to one server, through the proxies of the environment. Any thread may use it.

    It does not follow redirects. No error repeats a secret. Errors name a server without user, path and
    query, because these may contain secrets."""

    def __init__(
        self,
        url: str,
        verify: ssl.SSLContext | bool,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str | None] = (),
        connections: int = 1,
    ) -> None:
        """`timeout`: seconds for a connection, and for each part of a response. `headers`: sent with each
        request; an Authorization is secret. `connections`: about how many are used at once. The first request
        connects."""
        self._at = httpx.URL(url)
        self._name = _origin(self._at)
        user, password = self._at.username, self._at.password
        login = (headers or {}).get("Authorization", "").partition(" ")[2]
        # Without a password the user is a token.
        all_secrets = {*secrets, login, password or user, basic_login(user, password) if user else None}
        self._secrets = sorted((one for one in all_secrets if one), key=len, reverse=True)
        self._timeout = timeout
        self._client = httpx.Client(
            headers={"User-Agent": "binlane", "Accept-Encoding": "identity", **(headers or {})},
            timeout=timeout,
            verify=verify,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=max(20, connections)),
            follow_redirects=False,
        )

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int | float | bool] | None = None,
        most_bytes: int | None = None,
        only_status: bool = False,
    ) -> Answer:
        """Send a request and return the response, whatever its status.

        A successful response is read to its end, at most `most_bytes` (None: 1 GiB). Of others (with
        `only_status`: of all), only the beginning is read. Raises TargetUnavailable if no response arrives,
        or if it breaks off or does not end. Raises AnswerTooLarge."""
        try:
            with self._client.stream(method, url, content=content, headers=headers, params=params) as answer:
                if answer.is_success and not only_status:
                    body = _whole(answer, most_bytes or _MOST_BYTES, self._timeout)
                else:
                    body = _start(answer, self._timeout)
        except httpx.HTTPError as error:
            reason = f": {self.clean(str(error))}" if str(error) else ""
            raise TargetUnavailable(f"{self._name}: {type(error).__name__}{reason}") from None
        return Answer(answer.status_code, answer.reason_phrase, answer.headers, body, self._secrets)

    def fault(self, answer: Answer, text: str | None = None) -> str:
        """Describe a response for a message. `text`: its explanation; None: the start of its content."""
        told = answer.text if text is None else text
        if 300 <= answer.status < 400 and "Location" in answer.headers:
            told = (
                f"{self._moved(answer.headers['Location'])}, and redirects are not followed; see option url"
            )
        told = f": {self.clean(told)}" if told else ""
        return f"{self._name} answers {answer.status} {answer.reason}{told}"

    def unavailable(
        self, answer: Answer, text: str | None = None, clock: Callable[[], float] = time.time
    ) -> TargetUnavailable:
        """Return the error for a response after which the request is retried. `text`: see `fault`."""
        wait = retry_after(answer.headers.get("Retry-After"), clock())
        return TargetUnavailable(self.fault(answer, text), retry_after=wait)

    def clean(self, text: str) -> str:
        """Remove secrets: the response of a server or a proxy may repeat what was sent."""
        return _cleaned(text, self._secrets)

    def _moved(self, location: str) -> str:
        try:
            origin = _origin(self._at.join(location))
        except httpx.InvalidURL:
            return "it has moved"
        return "it has moved to another path" if origin == self._name else f"it has moved to {origin}"


def trusted(url: str, tls: TlsOptions, folder: Path, *, where: str = "tls") -> ssl.SSLContext | bool:
    """Load the certificates that a client of `url` trusts and presents. `where`: the section's key path.

    False for plain HTTP, which uses none, because loading the usual certificates is slow. Raises OSError if
    a certificate cannot be read, or if `url` is plain HTTP and would ignore it."""
    if httpx.URL(url).scheme != "https":  # in upper or lower case
        if tls.ca is not None or tls.certificate is not None:
            at = _origin(httpx.URL(url))
            raise OSError(f"{where}: {at} is plain HTTP and shows no certificate: write https://")
        return False
    made = httpx.create_ssl_context(verify=tls.verify)
    read = f"ca ({tls.ca})"
    try:
        if tls.ca is not None:
            made.load_verify_locations(folder / tls.ca)
        if tls.certificate is not None:
            key = None if tls.key is None else folder / tls.key
            read = f"certificate ({tls.certificate})" + ("" if key is None else f" with key ({tls.key})")
            made.load_cert_chain(folder / tls.certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise OSError(f"{where}: a certificate cannot be read: {read}: {error}") from None
    return made


def is_passing(status: int) -> bool:
    """Whether the failure is temporary: the server cannot take requests now, and may take this one later."""
    return status >= 500 or status in (408, 425, 429)


def is_denied(status: int) -> bool:
    """Whether a server or a proxy denies access. It will accept the same request once the credentials, the
    network or the URL are corrected."""
    return status in (401, 403, 407) or 300 <= status < 400


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks to wait. `now`: seconds since 1970.

    The header contains seconds or an HTTP date. None for anything else.
    https://www.rfc-editor.org/rfc/rfc9110#name-retry-after

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0.0)
    (120.0, 10.0, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.fromtimestamp(now, UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def basic_login(username: str, password: str) -> str:
    """Encode a user and password for HTTP's Basic scheme."""
    return base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def segment(name: str) -> str:
    """Percent-encode a name as one segment of a path. (`..` would lead to the parent.)"""
    return name.replace(".", "%2E") if set(name) <= {"."} else quote(name, safe="")


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _whole(answer: httpx.Response, most_bytes: int, timeout: float) -> bytes:
    """Read the whole body. Raises AnswerTooLarge."""
    seconds = max(_MOST_SECONDS, timeout)
    read, end = bytearray(), time.monotonic() + seconds
    for part in answer.iter_bytes():
        read += part
        if len(read) > most_bytes:
            raise AnswerTooLarge(f"the answer has more than {most_bytes >> 20} MiB")
        if time.monotonic() > end:
            raise httpx.ReadTimeout(f"an answer took more than {seconds:.0f} s")
    return bytes(read)


def _cleaned(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _start(answer: httpx.Response, timeout: float) -> bytes:
    """Read the beginning of a response of which only the status matters. Errors here are ignored: a
    connection whose response is not read to its end is closed."""
    read, end = bytearray(), time.monotonic() + timeout
    with contextlib.suppress(httpx.HTTPError):
        for part in answer.iter_raw(_FAULT_BYTES):
            read += part
            if len(read) >= _FAULT_BYTES or time.monotonic() > end:
                break
    return bytes(read)
