"""The `webhook` handler: batches of changes as JSON to an HTTP service."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import httpx
import msgspec

from handlers.api import (
    Batch,
    Change,
    Handler,
    HandlerContext,
    PartialFailure,
    Rejected,
    TargetUnavailable,
)
from handlers.change_json import line
from handlers.options.templates import Template, place_of
from handlers.options.tls import trusted
from handlers.webhook.answer import Verdict, retry_after, verdict
from handlers.webhook.options import WebhookOptions, address, literal_start

__all__ = ["WebhookHandler"]

_encode = msgspec.json.Encoder().encode

_ANSWER_BYTES = 1 << 16
_TOLD_CHARACTERS = 200
_SECRET_CHARACTERS = 7  # shorter ones stand in too many harmless words
_CONTENT_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson"}


class _Refused(Exception):
    """An answer that no further attempt would change."""

    def __init__(self, reason: str, kind: Verdict) -> None:
        super().__init__(reason)
        self.kind = kind


class WebhookHandler(Handler):
    """A batch is done when the service has answered 2xx to all its requests, which are sent in order."""

    options_model: ClassVar[type[WebhookOptions]] = WebhookOptions

    def __init__(self, **options: Any) -> None:
        self._options = WebhookOptions.model_validate(options)
        self._url = Template(self._options.url, row=False)
        self._origin = _origin(httpx.URL(address(self._url, "d", "t")))
        self._client: httpx.Client | None = None
        self._source = ""
        self.clock: Callable[[], float] = time.time
        """Seconds since 1970."""

    def open(self, context: HandlerContext) -> None:
        """Connects when it is first needed. Raises OSError for a certificate that cannot be read."""
        self._client = self._new_client(context)
        self._source = f"{context.worker}/{context.handler}"

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, or PartialFailure with one of them."""
        lines: list[bytes] = []
        for at, change in enumerate(batch.changes):
            try:
                lines.append(line(change, batch.database, batch.name)[:-1])
            except TypeError as error:
                raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
        for start in range(0, len(lines), self._options.max_changes):
            self._send(batch, lines, start, min(start + self._options.max_changes, len(lines)))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def check(self, context: HandlerContext) -> None:
        """Have any answer of the service to OPTIONS, which changes nothing. Raises TargetUnavailable, and
        OSError for a certificate that cannot be read."""
        with self._new_client(context) as client:
            try:
                answer = client.request("OPTIONS", literal_start(self._url), headers=self._options.headers)
            except httpx.HTTPError as error:
                raise TargetUnavailable(f"{self._origin}: {self._clean(_told(error))}") from None
        if answer.status_code in (502, 503, 504):
            raise TargetUnavailable(f"{self._origin} answers {answer.status_code}")

    def _new_client(self, context: HandlerContext) -> httpx.Client:
        return httpx.Client(
            timeout=self._options.timeout,
            verify=trusted(self._origin, self._options.tls, context.folder),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=max(20, context.lanes)),
            follow_redirects=False,
        )

    def _send(self, batch: Batch, lines: Sequence[bytes], start: int, end: int) -> None:
        """Send changes `start` to `end`; by halves when they are refused, until the refused one is alone."""
        changes = batch.changes[start:end]
        try:
            self._request(batch, lines[start:end], changes)
        except TargetUnavailable as error:
            raise _partial(start, error) from None
        except _Refused as refused:
            if end - start == 1 or refused.kind is Verdict.WRONG_ADDRESS:
                told = f"{place_of(changes[0], batch.table)}: {refused}"
                raise _partial(start, Rejected(told, at=start)) from None
            middle = start + (end - start) // 2
            self._send(batch, lines, start, middle)
            self._send(batch, lines, middle, end)

    def _request(self, batch: Batch, lines: Sequence[bytes], changes: Sequence[Change]) -> None:
        """Raises TargetUnavailable, _Refused."""
        assert self._client is not None, "handle comes after open"
        body = self._body(batch, lines)
        headers = self._headers(batch, changes, body)
        url = address(self._url, batch.database, batch.name)
        try:
            with self._client.stream(self._options.method, url, content=body, headers=headers) as answer:
                text = _start_of(answer, self._options.timeout)
        except httpx.HTTPError as error:
            raise TargetUnavailable(f"{self._origin}: {self._clean(_told(error))}") from None
        found = verdict(answer.status_code)
        if found is Verdict.DONE:
            return
        said = f": {told}" if (told := self._clean(" ".join(text.split()))[:_TOLD_CHARACTERS]) else ""
        if answer.has_redirect_location:
            said = f": {self._moved(httpx.URL(url), answer.headers['Location'])}; see option url"
        reason = f"{self._origin} answers {answer.status_code} {answer.reason_phrase}{said}"
        if found is Verdict.LATER:
            wait = retry_after(answer.headers.get("Retry-After"), self.clock())
            raise TargetUnavailable(reason, retry_after=wait)
        raise _Refused(reason, found)

    def _moved(self, url: httpx.URL, location: str) -> str:
        try:
            origin = _origin(url.join(location))
        except httpx.InvalidURL:
            return "it is elsewhere now"
        return "it is at another path now" if origin == self._origin else f"it is at {origin} now"

    def _body(self, batch: Batch, lines: Sequence[bytes]) -> bytes:
        if self._options.format == "ndjson":
            return b"".join([each + b"\n" for each in lines])
        names = {"table": batch.table, "database": batch.database, "name": batch.name}
        return _encode(names)[:-1] + b',"changes":[' + b",".join(lines) + b"]}"

    def _headers(self, batch: Batch, changes: Sequence[Change], body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": _CONTENT_TYPES[self._options.format],
            "User-Agent": "binlane",
            "Accept-Encoding": "identity",
            **batch.trace_headers(),
            **self._options.headers,
            "Idempotency-Key": self._idempotency_key(batch, changes),
        }
        signature = self._options.signature
        if signature is not None:
            at = str(int(self.clock()))
            signed = hmac.new(signature.secret.encode(), at.encode() + b"." + body, hashlib.sha256)
            headers[signature.timestamp_header] = at
            headers[signature.header] = f"sha256={signed.hexdigest()}"
        return headers

    def _idempotency_key(self, batch: Batch, changes: Sequence[Change]) -> str:
        """Equal for equal changes: made of the places where they come from."""
        first, last = changes[0], changes[-1]
        places = [(each.topic, each.partition, each.offset, each.index) for each in (first, last)]
        # A topic that was made anew has the same offsets again.
        ids = [batch.topic_ids[each.topic] for each in (first, last) if each.topic in batch.topic_ids]
        text = _encode([self._source, batch.table, places, len(changes), *ids])
        return hashlib.sha256(text).hexdigest()[:32]

    def _clean(self, text: str) -> str:
        """The text without what was sent in confidence: a service may answer with it."""
        signature = self._options.signature
        secrets = [*self._options.headers.values(), *([signature.secret] if signature else [])]
        secrets += [part for value in secrets for part in value.split()]  # Bearer TOKEN
        secrets += [self._options.url, httpx.URL(literal_start(self._url)).password]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SECRET_CHARACTERS:
                text = text.replace(secret, "***")
        return text


def _start_of(answer: httpx.Response, timeout: float) -> str:
    """The beginning of the answer's text: its status alone decides, so what breaks here does no harm.

    An answer that is not read to its end costs its connection.
    """
    read, end = b"", time.monotonic() + timeout
    with contextlib.suppress(httpx.HTTPError):
        for part in answer.iter_raw(_ANSWER_BYTES):
            read += part
            if len(read) >= _ANSWER_BYTES or time.monotonic() > end:
                break
    return read.decode("utf-8", "replace")


def _told(error: httpx.HTTPError) -> str:
    kind = type(error).__name__
    return f"{kind}: {error}" if str(error) else kind


def _origin(url: httpx.URL) -> str:
    """What of a URL may be told: its user, path and query may hold a secret."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _partial(done: int, cause: Exception) -> Exception:
    return PartialFailure(done, cause) if done else cause
