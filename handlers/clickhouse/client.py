"""The options, and ClickHouse's HTTP interface: queries, inserts, and errors by how to react to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from uuid import uuid4

from pydantic import Field, field_validator, model_validator

from handlers.failures import UnfitPlace
from handlers.http.client import AnswerTooLarge, HttpClient, is_denied, is_passing, trusted
from handlers.http.parts import Refused, RequestRefused
from handlers.options.shared import HistoryOptions, VersionedOptions, header_text
from handlers.options.templates import Template, template_of_table
from handlers.options.values import PositiveDuration, PositiveSize, duration, size
from handlers.versioned.versions import Unfit

OWN_SETTINGS = {
    # With this, an error has its own status, and does not appear inside a successful answer.
    "wait_end_of_query": "1",
    # A user's profile may set 1. Inserts would then be acknowledged before they are written.
    "async_insert": "0",
    # Versions already handle repeated rows. With deduplication, a block would be lost if the server had an
    # equal one before the table was emptied.
    "insert_deduplicate": "0",
    # Queries say FINAL themselves. A user's profile may set it for all queries, and would hide deleted rows.
    "final": "0",
    # A profile could silently truncate the results that are read here.
    "limit": "0",
    "offset": "0",
    **{f"{what}_overflow_mode": "throw" for what in ("result", "read", "timeout", "set", "group_by")},
    "use_query_cache": "0",
    "input_format_with_names_use_header": "1",
    "input_format_with_types_use_header": "1",
    "alter_sync": "2",
    "mutations_sync": "2",
}

OWN_COLUMNS: Mapping[str, str] = {
    "_version": "UInt64",
    "_deleted": "UInt8",
    "_partition": "LowCardinality(String)",
    "_source_time_ms": "Int64",
}
"""binlane's columns, in addition to the source's."""
OPENED = "_opened"


class ClickHouseOptions(HistoryOptions, VersionedOptions):
    """The keys of a `type: clickhouse` entry."""

    database: str = Field(default="{database}", min_length=1)
    """The target table's database; {database} and {table} are replaced."""
    table: str = "{table}"
    """The target table's name; {database} and {table} are replaced."""
    settings: dict[str, str | int | float | bool] = Field(default={})
    """ClickHouse settings for each query and insert, such as insert_quorum: auto."""
    max_bytes: PositiveSize = size("32MiB")
    """The most bytes of one insert. A larger row is sent alone."""
    timeout: PositiveDuration = duration("5m")
    """The timeout for a connection, and for an answer."""

    _are_ascii = field_validator("username", "password")(header_text)
    _are_templates = field_validator("database", "table")(template_of_table)

    @field_validator("settings")
    @classmethod
    def _settings_are_not_ours(
        cls, settings: dict[str, str | int | float | bool]
    ) -> dict[str, str | int | float | bool]:
        for name in settings:
            if name in OWN_SETTINGS or not re.fullmatch(r"[a-z0-9_]+", name) or name in ("query", "password"):
                raise ValueError(f"{name} cannot be set: it does not exist, or binlane needs its own value")
        return settings

    @model_validator(mode="after")
    def _names_the_table(self) -> Self:
        fields = [*Template(self.database, row=False).fields, *Template(self.table, row=False).fields]
        if not any(field.kind == "table" for field in fields):
            raise ValueError("every table would have the same place: table needs {table}")
        if taken := {*OWN_COLUMNS, OPENED}.intersection(self.period or ()):
            raise ValueError(f"start_column and end_column cannot be {min(taken)}: binlane needs that column")
        return self


_CODE = "X-ClickHouse-Exception-Code"
# https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
_PASSING = frozenset(
    (
        *(3, 24, 74, 75, 76, 77, 86, 95, 96, 172, 198, 204, 209, 210),  # server shutdown, files and sockets
        *(214, 279, 294, 373, 425, 586, 641),  # the same
        *(159, 160, 201, 202, 203, 364, 439, 700, 745, 749, 762),  # time, quotas, too many at once
        *(173, 241, 243, 252, 411, 574),  # memory, disk, parts that wait for a merge
        *(225, 242, 244, 254, 265, 285, 286, 289, 319, 341, 369, 384),  # replicas and their Keeper
        *(416, 517, 519, 529, 571, 733, 904, 999),  # the same
        *(236, 394, 473, 499, 500, 660, 693, 707, 737, 900, 901),  # aborted, or a store is unavailable
        # Wrong credentials: correcting them helps all waiting tables.
        *(192, 193, 194, 195, 516, 720),
    )
)
_OF_LIBRARIES = frozenset((1000, 1001))
_OF_FILES = re.compile("filesystem error|File access error|No space left on device|Read-only file system")
"""Libraries' messages if the disk accepts no file, for example because it is full."""
_NO_RIGHT = frozenset(
    (46, 47, 60, 81, 115, 158, 164, 191, 291, 307, 392, 452, 471, 472, 497, 620, 695, 722, 724, 725, 759)
)
"""Faults that may concern only this table: a missing right, a wrong setting or a reached limit. Or the
server could not load the table, or one of its views reads something that does not exist."""
_TOO_LARGE = 396
_OF_DATA = frozenset((6, 27, 33, 38, 41, 43, 53, 69, 70, 72, 117, 131, 321, 349, 469, 636, 691))


def identifier(*names: str) -> str:
    """Quote names for a query.

    >>> identifier("shop", "a`b")
    '`shop`.`a\\\\`b`'
    """
    return ".".join("`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`" for name in names)


def literal(text: str) -> str:
    """Quote a text for a query.

    >>> literal("it's")
    "'it\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class ClickHouseClient:
    """Connections to one server. Any thread may use it."""

    def __init__(self, options: ClickHouseOptions, folder: Path, connections: int) -> None:
        """The first use connects. Raises OSError if a certificate cannot be read."""
        self._url = f"{options.url}/"
        self._settings = options.settings
        headers = {}
        if options.username is not None and options.password is not None:
            # Never in the URL, because proxies and query logs store it.
            headers = {"X-ClickHouse-User": options.username, "X-ClickHouse-Key": options.password}
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

    def query(self, sql: str) -> bytes:
        """Run a query and return the answer.

        Raises TargetUnavailable if the server is unreachable, overloaded or denies access. Raises Refused,
        RequestRefused, UnfitPlace, AnswerTooLarge."""
        size = {"max_query_size": str(len(sql) * 4 + 10_000)} if len(sql) > 50_000 else {}
        return self._send(size, sql.encode("utf-8"))

    def insert(self, into: str, header: bytes, rows: Sequence[bytes]) -> None:
        """Insert rows in the format that `into` (INSERT INTO … FORMAT …) names. Raises as `query` does.
        Refused: the server rejects these rows or this size. UnfitPlace: it rejects any insert."""
        # From 26.2 on, deduplicate_insert overrides insert_deduplicate. Older servers do not know it.
        own = {"query": into, "insert_deduplication_token": uuid4().hex}
        try:
            self._send(own, b"".join((header, *rows)))
        except RequestRefused as error:
            if not rows:  # even an empty insert fails, for example because a view's target is missing
                raise UnfitPlace(str(error)) from None
            self.insert(into, header, ())
            raise

    def _send(self, more: dict[str, str], body: bytes) -> bytes:
        # A batch may touch any number of partitions of the table, so a limit could refuse it permanently.
        params = {"max_partitions_per_insert_block": "0", **self._settings, **OWN_SETTINGS, **more}
        answer = self._client.request("POST", self._url, params=params, content=body)
        code = answer.headers.get(_CODE)
        is_page = "text/html" in answer.headers.get("Content-Type", "")
        if answer.is_success and code is None and not is_page:
            return answer.content
        number = int(code) if code is not None and code.isdecimal() else None
        reason = self._client.fault(answer)
        if number in _OF_DATA or (number is None and answer.status == 413):
            raise Refused(reason)
        # Without a code, something before the server answers, such as a balancer or a maintenance page.
        passes = is_passing(answer.status) or is_denied(answer.status) or answer.status == 404 or is_page
        is_of_disk = number in _OF_LIBRARIES and _OF_FILES.search(reason) is not None
        if number in _PASSING or is_of_disk or (number is None and passes):
            raise self._client.unavailable(answer)
        if number in _NO_RIGHT or number is None:
            raise UnfitPlace(reason)
        if number == _TOO_LARGE:
            raise AnswerTooLarge(reason)
        raise RequestRefused(reason)


_OLDEST = (23, 8)
"""Needed: `is_deleted` of ReplacingMergeTree, `COMMENT`s of tables, `format()` with inline data."""


def check_server(client: ClickHouseClient, url: str) -> None:
    """Check a server for `binlane check --connect`, without changes. Raises Unfit, or as ClickHouseClient."""
    told = client.query("SELECT version() FORMAT TSV").decode("utf-8", "replace").strip()
    found = re.match(r"(\d+)\.(\d+)\.", told)
    if found is None:
        raise Unfit(f"{url} is not ClickHouse: it reports no version")
    if (int(found[1]), int(found[2])) < _OLDEST:
        raise Unfit(f"{url} is ClickHouse {told}; needed: 23.8 or later")
    client.query("SELECT count() FROM system.columns WHERE database = '' FORMAT TSV")
