"""The `webhook` handler: sends batches of changes as JSON to an HTTP service."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import httpx
import msgspec
from pydantic import Field, field_validator

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, TargetUnavailable
from handlers.failures import UnfitPlace, behind
from handlers.http.client import HttpClient, is_denied, is_passing, segment, trusted
from handlers.http.parts import Refused, RowRefused, by_halves
from handlers.options.shared import Options, TlsOptions
from handlers.options.templates import Template, place_of
from handlers.options.values import PositiveDuration, duration, not_allowed
from handlers.rows import borders
from handlers.values.change_json import line

_URLS = "a URL such as https://HOST/path, which may contain {database} and {table}"
# https://www.rfc-editor.org/rfc/rfc9110#name-tokens, #name-field-values
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
_OWNED = frozenset(("content-length", "host", "transfer-encoding", "connection", "idempotency-key"))
_encode = msgspec.json.Encoder().encode

_SECRET_CHARACTERS = 7  # shorter ones occur in too many harmless words
_SEPARATORS = re.compile(r"[/?&=]")
_CONTENT_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson"}
_WRONG_ADDRESS = frozenset((402, 404, 405, 410, 411, 414, 415, 421, 426, 428, 431, 451))
"""Statuses that refuse every request: the URL, the method or a header is wrong, or payment is required."""


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name")
    return name


class SignatureOptions(Options):
    """Options `signature:`, with which the receiver verifies that a request is from binlane."""

    secret: str = Field(min_length=1)
    """The secret that both sides know."""
    header: str = "X-Binlane-Signature"
    """The header with the signature."""
    timestamp_header: str = "X-Binlane-Timestamp"
    """The header with the time, which is signed with the body."""

    _are_names = field_validator("header", "timestamp_header")(_header_name)


class WebhookOptions(Options):
    """The keys of a `type: webhook` entry."""

    url: str
    """The receiver's URL; {database} and {table} are replaced."""
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    """The HTTP method."""
    headers: dict[str, str] = Field(default={})
    """Additional headers, such as Authorization."""
    format: Literal["json", "ndjson"] = "json"
    """json: an object with a list of changes. ndjson: one change per line."""
    max_changes: int = Field(default=500, ge=1, le=100_000)
    """The most changes in one request."""
    timeout: PositiveDuration = duration("30s")
    """The timeout for a connection, and for each part of an answer."""
    signature: SignatureOptions | None = None
    """Sign each request (HMAC-SHA256)."""
    tls: TlsOptions = Field(default=TlsOptions())
    """Certificates."""

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        try:
            template = Template(url, row=False)
            whole, start = httpx.URL(_address(template, "d", "t")), httpx.URL(_literal_start(template))
        except httpx.InvalidURL:
            raise not_allowed(_URLS) from None
        # The name of a table must not choose the host.
        if whole.scheme not in ("http", "https") or not whole.host or start.netloc != whole.netloc:
            raise not_allowed(_URLS)
        return url

    @field_validator("headers")
    @classmethod
    def _headers_are_usable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if _header_name(name).lower() in _OWNED:
                raise ValueError(f"the handler sets {name} itself: remove it")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the value of {name} is not allowed in a header (ASCII, no line breaks)")
        return headers


def _literal_start(template: Template) -> str:
    """Return the part before the first placeholder."""
    first = template.parts[0] if template.parts else ""
    return first if isinstance(first, str) else ""


def _address(template: Template, database: str, table: str) -> str:
    """Return the URL for a table, with its names percent-encoded."""
    return template.of_table(database, table, encode=segment)


class WebhookHandler(Handler):
    """Sends a batch's requests in order. The batch is finished when all were answered with 2xx."""

    options_model: ClassVar[type[WebhookOptions]] = WebhookOptions

    def __init__(self, **options: Any) -> None:
        self._options = WebhookOptions.model_validate(options)
        self._url = Template(self._options.url, row=False)
        self._client: HttpClient | None = None
        self._source = ""
        self.clock: Callable[[], float] = time.time
        """Seconds since 1970."""

    def open(self, context: HandlerContext) -> None:
        """Create the client, which connects on first use. Raises OSError if a certificate cannot be read."""
        self._client = self._new_client(context)
        self._source = f"{context.worker}/{context.handler}"

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, UnfitPlace, or PartialFailure with one of them."""
        lines: list[bytes] = []
        for at, change in enumerate(batch.changes):
            try:
                lines.append(line(change, batch.database, batch.name)[:-1])
            except TypeError as error:
                raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
        for parts in self._requests(batch.changes):
            try:
                by_halves(parts, lambda first, last: self._send(batch, lines, first, last))
            except RowRefused as refused:
                place = place_of(batch.changes[refused.at], batch.table)
                raise behind(refused.at, Rejected(f"{place}: {refused}", at=refused.at)) from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def check(self, context: HandlerContext) -> None:
        """Send OPTIONS, which changes nothing, and accept any response but 502, 503 and 504. Raises
        TargetUnavailable. Raises OSError if a certificate cannot be read."""
        client = self._new_client(context)
        url, headers = _literal_start(self._url), self._options.headers
        with closing(client):
            answer = client.request("OPTIONS", url, headers=headers, only_status=True)
        if answer.status in (502, 503, 504):
            raise client.unavailable(answer)

    def _new_client(self, context: HandlerContext) -> HttpClient:
        url = _address(self._url, "d", "t")
        return HttpClient(
            url,
            trusted(url, self._options.tls, context.folder),
            timeout=self._options.timeout,
            secrets=[one for one in self._secrets() if len(one) >= _SECRET_CHARACTERS],
            connections=context.lanes,
        )

    def _secrets(self) -> Iterator[str]:
        if self._options.signature is not None:
            yield self._options.signature.secret
        for value in self._options.headers.values():
            yield from (value, *value.split())  # Bearer TOKEN
        # The response to an unknown path may repeat it, encoded or decoded.
        start, *rest = (part for part in self._url.parts if isinstance(part, str))
        for text in (httpx.URL(start).raw_path.decode("ascii"), *rest):
            for one in (text, *_SEPARATORS.split(text)):
                yield from (one, unquote(one))

    def _requests(self, changes: Sequence[Change]) -> Iterator[Sequence[int]]:
        """Yield the borders of each request's parts."""
        parts, start = borders(changes, 0, len(changes)), 0
        while parts[start] < len(changes):
            end = max(bisect_right(parts, parts[start] + self._options.max_changes) - 1, start + 1)
            yield parts[start : end + 1]
            start = end

    def _send(self, batch: Batch, lines: Sequence[bytes], start: int, end: int) -> None:
        """Send changes `start` to `end`. Raises Refused, TargetUnavailable, UnfitPlace, or PartialFailure."""
        assert self._client is not None, "handle needs open"
        body = self._body(batch, lines[start:end])
        headers = self._headers(batch, batch.changes[start:end], body)
        method, url = self._options.method, _address(self._url, batch.database, batch.name)
        try:
            answer = self._client.request(method, url, content=body, headers=headers, only_status=True)
            if is_passing(answer.status) or is_denied(answer.status):
                raise self._client.unavailable(answer, clock=self.clock)
            if answer.status in _WRONG_ADDRESS:
                raise UnfitPlace(self._client.fault(answer))
        except TargetUnavailable as error:
            raise behind(start, error) from None
        if not answer.is_success:
            raise Refused(self._client.fault(answer))

    def _body(self, batch: Batch, lines: Sequence[bytes]) -> bytes:
        if self._options.format == "ndjson":
            return b"".join([each + b"\n" for each in lines])
        names = {"table": batch.table, "database": batch.database, "name": batch.name}
        return _encode(names)[:-1] + b',"changes":[' + b",".join(lines) + b"]}"

    def _headers(self, batch: Batch, changes: Sequence[Change], body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": _CONTENT_TYPES[self._options.format],
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
        """Return a key made from the changes' positions: it is equal for equal changes."""
        first, last = changes[0], changes[-1]
        places = [(each.topic, each.partition, each.offset, each.index) for each in (first, last)]
        # A recreated topic has the same offsets again.
        ids = [batch.topic_ids[each.topic] for each in (first, last) if each.topic in batch.topic_ids]
        text = _encode([self._source, batch.table, places, len(changes), *ids])
        return hashlib.sha256(text).hexdigest()[:32]
