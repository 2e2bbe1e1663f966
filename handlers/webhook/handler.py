"""The `webhook` handler: sends batches of changes as JSON to an HTTP service."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar
from urllib.parse import unquote

import httpx
import msgspec

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, TargetUnavailable
from handlers.change_json import line
from handlers.failures import UnfitPlace, behind
from handlers.http.client import HttpClient, is_denied, is_passing, trusted
from handlers.http.parts import Refused, RowRefused, by_halves
from handlers.options.templates import Template, place_of
from handlers.rows import borders
from handlers.webhook.options import WebhookOptions, address, literal_start

_encode = msgspec.json.Encoder().encode

_SECRET_CHARACTERS = 7  # shorter ones occur in too many harmless words
_SEPARATORS = re.compile(r"[/?&=]")
_CONTENT_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson"}
_WRONG_ADDRESS = frozenset((402, 404, 405, 410, 411, 414, 415, 421, 426, 428, 431, 451))
"""Statuses that refuse every request: the URL, the method or a header is wrong, or payment is required."""


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
        url, headers = literal_start(self._url), self._options.headers
        with closing(client):
            answer = client.request("OPTIONS", url, headers=headers, only_status=True)
        if answer.status in (502, 503, 504):
            raise client.unavailable(answer)

    def _new_client(self, context: HandlerContext) -> HttpClient:
        url = address(self._url, "d", "t")
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
        assert self._client is not None, "handle comes after open"
        body = self._body(batch, lines[start:end])
        headers = self._headers(batch, batch.changes[start:end], body)
        method, url = self._options.method, address(self._url, batch.database, batch.name)
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
