"""A server as the handler speaks to it: ClickHouse's HTTP interface, and errors by what is to be done."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx

from handlers.api import TargetUnavailable
from handlers.clickhouse.options import OWN_SETTINGS, ClickHouseOptions
from handlers.options.tls import trusted

__all__ = [
    "ClickHouseClient",
    "ColumnThere",
    "DataRefused",
    "RefusedByServer",
    "ResultTooLarge",
    "identifier",
    "literal",
]

_TOLD_CHARACTERS = 400
_CODE = "X-ClickHouse-Exception-Code"
# https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
_PASSING = frozenset(
    (
        *(3, 76, 209, 210, 279, 373, 425),  # the server ends, files and sockets
        *(159, 160, 201, 202, 203, 439, 745),  # time, quotas, too many at once
        *(241, 243, 252),  # memory, disk, parts that wait to be merged
        *(225, 242, 285, 286, 289, 319, 341, 517, 571, 999),  # replicas and their Keeper
        *(236, 394, 473, 499),  # given up there, or a store that is away
        *(192, 193, 194, 195, 497, 516),  # whoever mends the credentials mends it for all that waits
    )
)
_TOO_LARGE, _COLUMN_THERE = 396, 15
_OF_DATA = frozenset((6, 27, 33, 38, 41, 43, 53, 69, 70, 72, 117, 131, 321, 349, 469, 636, 691))


class RefusedByServer(Exception):
    """The server refused a query that no single change is to blame for."""


class ColumnThere(RefusedByServer):
    """A column that was to be added is there."""


class DataRefused(Exception):
    """The server refused the rows that were inserted for what they are."""


class ResultTooLarge(Exception):
    """A query's result is above the `max_result_bytes` that it names."""


def identifier(*names: str) -> str:
    """Names as they stand in a query.

    >>> identifier("shop", "a`b")
    '`shop`.`a\\\\`b`'
    """
    return ".".join("`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`" for name in names)


def literal(text: str) -> str:
    """A text as it stands in a query.

    >>> literal("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class ClickHouseClient:
    """Connections to one server. Any thread may use it."""

    def __init__(self, options: ClickHouseOptions, folder: Path, connections: int) -> None:
        """Connects when it is first used. Raises OSError for a certificate that cannot be read."""
        self._url = options.url
        self._password = options.password
        self._settings = options.settings
        headers = {"User-Agent": "binlane"}
        if options.username is not None and options.password is not None:
            # Never in the URL, which proxies and query logs keep.
            headers |= {"X-ClickHouse-User": options.username, "X-ClickHouse-Key": options.password}
        self._client = httpx.Client(
            headers=headers,
            timeout=options.timeout,
            verify=trusted(options.url, options.tls, folder),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=max(20, connections)),
        )

    def close(self) -> None:
        self._client.close()

    def query(self, sql: str) -> bytes:
        """What it answers.

        Raises TargetUnavailable: it cannot be reached, has no room now, or lets nobody in; RefusedByServer,
        ColumnThere; ResultTooLarge.
        """
        size = {"max_query_size": str(len(sql) * 4 + 10_000)} if len(sql) > 50_000 else {}
        return self._send(size, sql.encode("utf-8"))

    def insert(self, into: str, rows: bytes) -> None:
        """Rows, in the format that `into` (INSERT INTO … FORMAT …) names. Raises as `query`, and
        DataRefused."""
        self._send({"query": into}, rows)

    def _send(self, more: dict[str, str], body: bytes) -> bytes:
        try:
            answer = self._client.post(
                f"{self._url}/", params={**self._settings, **OWN_SETTINGS, **more}, content=body
            )
        except httpx.HTTPError as error:
            text = f"{type(error).__name__}: {error}"
            raise TargetUnavailable(f"{self._url}: {self._clean(text)}") from None
        code = answer.headers.get(_CODE)
        if answer.is_success and code is None:
            return answer.content
        reason = f"{self._url} answers {answer.status_code}: {self._clean(_told(answer))}"
        number = int(code) if code is not None and code.isdecimal() else None
        if number in _OF_DATA:
            raise DataRefused(reason)
        if number == _TOO_LARGE:
            raise ResultTooLarge(reason)
        if number == _COLUMN_THERE:
            raise ColumnThere(reason)
        if number in _PASSING or (number is None and _is_passing(answer.status_code)):
            raise TargetUnavailable(reason)
        raise RefusedByServer(reason)

    def _clean(self, text: str) -> str:
        """The text without what was sent in confidence: what stands before a server may answer with it."""
        if self._password is None:
            return text
        encoded = base64.b64encode(self._password.encode()).decode("ascii")
        return text.replace(self._password, "***").replace(encoded, "***")


def _is_passing(status: int) -> bool:
    """Of what stands before the server, such as a balancer."""
    return status >= 500 or status in (401, 403, 408, 425, 429) or 300 <= status < 400


def _told(answer: httpx.Response) -> str:
    return " ".join(answer.text[: 4 * _TOLD_CHARACTERS].split())[:_TOLD_CHARACTERS]
