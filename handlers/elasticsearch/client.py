"""A cluster as the handler speaks to it: requests, and errors by what is to be done about them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec

from handlers.api import TargetUnavailable
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.options.tls import trusted
from handlers.webhook.answer import retry_after

__all__ = ["LATER", "Answer", "RefusedByCluster", "SearchClient", "told"]

_TOLD_CHARACTERS = 400
LATER = frozenset((401, 403, 408, 425, 429))
"""With 401 and 403: whoever mends the credentials mends it for all that waits."""


class RefusedByCluster(Exception):
    """The cluster refused a request that no single change is to blame for."""


class Answer(NamedTuple):
    status: int
    body: Any
    """Of JSON."""
    size: int
    """Bytes of it."""


class SearchClient:
    """Connections to one cluster. Any thread may use it."""

    def __init__(self, options: ElasticsearchOptions, folder: Path, connections: int) -> None:
        """Connects when it is first used. Raises OSError for a certificate that cannot be read."""
        self._options = options
        self._secrets = _secrets(options)
        self.clock: Callable[[], float] = time.time
        headers = {"User-Agent": "binlane", "Accept": "application/json"}
        if options.api_key is not None:
            headers["Authorization"] = f"ApiKey {options.api_key}"
        elif options.username is not None:
            login = f"{options.username}:{options.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode('ascii')}"
        self._client = httpx.Client(
            headers=headers,
            timeout=options.timeout,
            verify=trusted(options.url, options.tls, folder),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=max(20, connections)),
        )

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bytes | None = None,
        may: tuple[int, ...] = (),
        form: Any = Any,
    ) -> Answer:
        """What the cluster answers: 2xx, or one of the statuses `may`. `body` is sent as JSON, `lines` as
        lines of it; `form` is the type that the answer is decoded into.

        Raises TargetUnavailable: it cannot be reached, has no room now, or lets nobody in; RefusedByCluster.
        """
        content, kind = lines, "application/x-ndjson"
        if body is not None:
            content, kind = msgspec.json.encode(body), "application/json"
        try:
            answer = self._client.request(
                method,
                self._options.url + path,
                content=content,
                headers={} if content is None else {"Content-Type": kind},
            )
        except httpx.HTTPError as error:
            text = f"{type(error).__name__}: {error}"
            raise TargetUnavailable(f"{self._options.url}: {self._clean(text)}") from None
        status = answer.status_code
        if 200 <= status < 300 or status in may:
            return Answer(status, self._read(answer, form), len(answer.content))
        where = f"{self._options.url} answers {status} to {method} {path.partition('?')[0]}"
        reason = f"{where}: {self._clean(told(_json(answer)) or answer.text[:_TOLD_CHARACTERS])}"
        if status >= 500 or status in LATER:
            wait = retry_after(answer.headers.get("Retry-After"), self.clock())
            raise TargetUnavailable(reason, retry_after=wait)
        raise RefusedByCluster(reason)

    def _read(self, answer: httpx.Response, form: Any) -> Any:
        """A HEAD has no body. Raises TargetUnavailable for what is no JSON: somebody else answers."""
        if not answer.content:
            return None
        body = _json(answer, form)
        if body is None:
            raise TargetUnavailable(f"{self._options.url} answers {answer.status_code} with what is no JSON")
        return body

    def _clean(self, text: str) -> str:
        """The text without what was sent in confidence: what stands before a cluster may answer with it."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def told(body: Any) -> str:
    """What an answer, or the `error` of an item, says is wrong."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error or "")[:_TOLD_CHARACTERS]
    words = [f"{error.get('type', 'error')}: {error.get('reason', '')}"]
    cause = error.get("caused_by")
    if isinstance(cause, dict) and cause.get("reason"):
        words.append(str(cause["reason"]))
    return ": ".join(words)[:_TOLD_CHARACTERS]


def _json(answer: httpx.Response, form: Any = Any) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=form)
    except msgspec.DecodeError:
        return None


def _secrets(options: ElasticsearchOptions) -> list[str]:
    found = [one for one in (options.password, options.api_key) if one]
    if options.password is not None:
        found.append(base64.b64encode(f"{options.username}:{options.password}".encode()).decode("ascii"))
    return sorted(found, key=len, reverse=True)
