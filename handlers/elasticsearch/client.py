"""The options, and a cluster's HTTP interface: requests, bulk writes, and errors by how to react to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from handlers.api import TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.http.client import Answer as HttpAnswer
from handlers.http.client import HttpClient, basic_login, is_denied, is_passing, trusted
from handlers.http.parts import Refused, RequestRefused, RowRefused, in_parts
from handlers.options.shared import VersionedOptions, header_text
from handlers.options.templates import Template
from handlers.options.values import PositiveDuration, PositiveSize, duration, size
from handlers.versioned.versions import Unfit

_NAMED = re.compile(r"[A-Za-z0-9._-]*")


class ElasticsearchOptions(VersionedOptions):
    """The keys of a `type: elasticsearch` (or `opensearch`) entry."""

    api_key: str | None = Field(default=None, min_length=1, repr=False)
    """An API key, encoded, instead of a user."""
    index: str = "{database}.{table}"
    """The table's index or its alias; {database} and {table} are replaced, in lower case."""
    keep_deletes: PositiveDuration = duration("1h")
    """`index.gc_deletes` of created indexes: how long a deleted row's version is remembered."""
    max_bytes: PositiveSize = size("8MiB")
    """The most bytes of one request. A larger row is sent alone."""
    timeout: PositiveDuration = duration("60s")
    """The timeout for a connection, and for an answer."""

    _is_encoded = field_validator("api_key")(header_text)

    @field_validator("index")
    @classmethod
    def _index_tells_tables_apart(cls, index: str) -> str:
        template = Template(index, row=False)
        if not any(field.kind == "table" for field in template.fields):
            raise ValueError("every table would have the same index: add {table}")
        if not all(_NAMED.fullmatch(part) for part in template.parts if isinstance(part, str)):
            raise ValueError("besides {database} and {table}: letters, digits, '.', '_' and '-'")
        return index

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if self.username is not None and self.api_key is not None:
            raise ValueError("either username and password, or api_key")
        return self


_TOLD_CHARACTERS = 400
_encode = msgspec.json.Encoder().encode
_read_any = msgspec.json.Decoder().decode
_CONFLICT = 409
_OF_PIPELINE = "fail_processor_exception"
"""An ingest pipeline refuses the document on purpose. Its status 500 does not mean a failed cluster."""
_NO_PIPELINE = "pipeline with id ["
_OTHER_TYPE = (
    "If the type of the source's column changed: a field cannot change its type, so create an index with "
    "this one's mapping and the new type, copy the documents (_reindex with version_type: external), and "
    "route this table there (option index)"
)


class Answer(NamedTuple):
    status: int
    body: Any
    """The decoded JSON."""


class SearchClient:
    """Connections to one cluster. Any thread may use it."""

    def __init__(self, options: ElasticsearchOptions, folder: Path, connections: int) -> None:
        """The first use connects. Raises OSError if a certificate cannot be read."""
        self._url = options.url
        headers = {"Accept": "application/json"}
        if options.api_key is not None:
            headers["Authorization"] = f"ApiKey {options.api_key}"
        elif options.username is not None and options.password is not None:
            headers["Authorization"] = f"Basic {basic_login(options.username, options.password)}"
        self._client = HttpClient(
            options.url,
            trusted(options.url, options.tls, folder),
            timeout=options.timeout,
            headers=headers,
            secrets=[options.password],
            connections=connections,
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
        read: Callable[[bytes], Any] = _read_any,
        most_bytes: int | None = None,
    ) -> Answer:
        """Send a request and return the answer: 2xx, or one of the statuses `may`. `body` is sent as JSON,
        `lines` as JSON lines. `read` decodes the answer. `most_bytes` limits its size.

        Raises TargetUnavailable if the cluster is unreachable, overloaded or denies access. Raises
        AnswerTooLarge, UnfitPlace, RequestRefused."""
        content, headers = lines, {} if lines is None else {"Content-Type": "application/x-ndjson"}
        if body is not None:
            content, headers = msgspec.json.encode(body), {"Content-Type": "application/json"}
        answer = self._client.request(
            method, self._url + path, content=content, headers=headers, most_bytes=most_bytes
        )
        body = _json(answer, read if answer.is_success else _read_any)
        if answer.is_success and body is None and answer.content:  # a HEAD has no body
            raise self._client.unavailable(answer, "it is not JSON, so another server answers")
        if answer.is_success or answer.status in may:
            return Answer(answer.status, body)
        reason = f"{method} {path.partition('?')[0]}: {told(body, self._client.clean) or answer.text}"
        if is_of_index(answer.status, body):
            raise UnfitPlace(self._client.fault(answer, reason))
        if is_passing(answer.status) or is_denied(answer.status):
            raise self._client.unavailable(answer, reason)
        raise RequestRefused(self._client.fault(answer, reason))


def error_type(body: Any) -> str | None:
    """Return the type of the error in an answer; None if it has none, as when a proxy answered."""
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("type") if isinstance(error, dict) else None


def is_of_index(status: int, body: Any) -> bool:
    """Whether the cluster refuses all requests to this index, but perhaps not to others."""
    kind = error_type(body)
    return kind == "index_closed_exception" or (
        status == 403 and kind in ("security_exception", "cluster_block_exception")
    )


def told(body: Any, clean: Callable[[str], str] = str) -> str:
    """Describe the error of an answer, or of an item's `error`. `clean` removes secrets from the text."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return clean(str(error or ""))[:_TOLD_CHARACTERS]
    words = [f"{error.get('type', 'error')}: {error.get('reason', '')}"]
    cause = error.get("caused_by")
    if isinstance(cause, dict) and cause.get("reason"):
        words.append(str(cause["reason"]))
    return clean(": ".join(words))[:_TOLD_CHARACTERS]


def _json(answer: HttpAnswer, read: Callable[[bytes], Any] = _read_any) -> Any:
    try:
        return read(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


# manage: to change an index's mapping, in which it remembers its sources.
_PRIVILEGES = ("read", "write", "view_index_metadata", "maintenance", "manage")
_OLDEST = {"elasticsearch": 7, "opensearch": 1}


def check_cluster(client: SearchClient, options: ElasticsearchOptions) -> None:
    """Check a cluster for `binlane check --connect`, without changes. Raises Unfit, and as SearchClient."""
    body = client.request("GET", "/").body
    told = body.get("version") if isinstance(body, dict) else None
    number = told.get("number") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(number, str) or not re.match(r"\d+\.", number):
        raise Unfit(f"{options.url} is neither Elasticsearch nor OpenSearch: it reports no version")
    product = "opensearch" if told.get("distribution") == "opensearch" else "elasticsearch"
    if int(number.partition(".")[0]) < _OLDEST[product]:
        raise Unfit(
            f"{options.url} is {product} {number}; needed: Elasticsearch 7.10 or OpenSearch 1, or later"
        )
    if product == "elasticsearch":
        _check_privileges(client, options)


def _check_privileges(client: SearchClient, options: ElasticsearchOptions) -> None:
    """Check the user's privileges. Elasticsearch without security answers 400, 404 or 405."""
    pattern = Template(options.index, row=False).of_table("*", "*").lower()
    wanted = (*_PRIVILEGES, *(("create_index",) if options.create else ()))
    body = {"index": [{"names": [pattern], "privileges": list(wanted)}]}
    try:
        found = client.request("POST", "/_security/user/_has_privileges", body).body
    except RequestRefused:
        return
    if not isinstance(found, dict) or found.get("has_all_requested", True):
        return
    has = found.get("index", {}).get(pattern, {})
    lacking = ", ".join(name for name in wanted if not has.get(name))
    raise Unfit(f"{options.url}: the user lacks, for indexes {pattern}: {lacking}")


class Item(msgspec.Struct, frozen=True):
    id: str
    version: int
    at: int
    """The place of its change in the batch."""
    document: bytes | None
    """The document as JSON; None to delete it."""

    def lines(self) -> bytes:
        action = {"_id": self.id, "version": self.version, "version_type": "external"}
        if self.document is None:
            return _encode({"delete": action}) + b"\n"
        return _encode({"index": action}) + b"\n" + self.document + b"\n"


class _Outcome(msgspec.Struct, gc=False):
    status: int
    error: Any = None


class _Results(msgspec.Struct, gc=False):
    """The decoded part of an answer. The whole would need several times the memory of its text."""

    items: list[dict[str, _Outcome]]
    errors: bool = False


_read_results = msgspec.json.Decoder(_Results).decode


def write(client: SearchClient, path: str, items: Sequence[Item], most_bytes: int) -> list[Item]:
    """Write all items. Return those whose document has an equal or higher version in the index.

    Raises RowRefused for the first item that is refused for its content. Raises TargetUnavailable if some
    were not accepted now. Raises RequestRefused. Written items stay; writing them again changes nothing."""
    lines, late = [item.lines() for item in items], list[Item]()

    def send(start: int, end: int) -> None:
        body = b"".join(lines[start:end])
        answer = client.request("POST", f"{path}/_bulk", lines=body, may=(413,), read=_read_results)
        if answer.status == 413:
            raise Refused(f"its document of {len(body)} bytes is too large for the cluster")
        late.extend(_late(path, items[start:end], answer.body, start))

    in_parts(lines, most_bytes, send, places=[item.at for item in items])
    return late


def _late(path: str, items: Sequence[Item], results: _Results, start: int) -> list[Item]:
    """Return items with a later version in the index. `start`: the first one's place. Raises as `write`."""
    if len(results.items) != len(items):
        raise TargetUnavailable("the answer to _bulk does not list each document")
    if not results.errors:
        return []
    late, refused = list[Item](), list[RowRefused]()
    unavailable: TargetUnavailable | None = None
    for at, (item, result) in enumerate(zip(items, results.items, strict=True), start):
        outcome = next(iter(result.values()))
        status, error = outcome.status, outcome.error
        if error is None:
            continue
        if status == _CONFLICT:
            late.append(item)
        elif str(error.get("reason")).startswith(_NO_PIPELINE) or is_of_index(status, {"error": error}):
            raise UnfitPlace(f"_bulk of {path[1:]}: {status}: {told(error)}")
        elif _is_passing(status, error):
            unavailable = TargetUnavailable(f"_bulk of {path[1:]}: {told(error)}")
        elif status == 400 or error.get("type") == _OF_PIPELINE:
            refused.append(RowRefused(at, f"its document is refused: {told(error)}. {_OTHER_TYPE}"))
        else:
            raise RequestRefused(f"_bulk of {path[1:]}: {status}: {told(error)}")
    # Retry unavailable items first; a refusal is judged after that.
    if unavailable is not None:
        raise unavailable
    if refused:
        raise refused[0]
    return late


def _is_passing(status: int, error: dict[str, Any]) -> bool:
    # A block means a full disk, or an index that is being moved.
    is_blocked = error.get("type") == "cluster_block_exception"
    return error.get("type") != _OF_PIPELINE and (is_passing(status) or is_denied(status) or is_blocked)
