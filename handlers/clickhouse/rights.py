"""`binlane check --connect`: which server is there, and whether it does what is needed."""

from __future__ import annotations

import re

from handlers.clickhouse.client import ClickHouseClient

__all__ = ["ServerUnfit", "check_server"]

_OLDEST = (23, 8)
"""`is_deleted` of ReplacingMergeTree, `COMMENT`s of tables, `format()` with its data."""


class ServerUnfit(Exception):
    """The server is none that is known here, or too old."""


def check_server(client: ClickHouseClient, url: str) -> None:
    """Changes nothing. Raises ServerUnfit, and as ClickHouseClient."""
    told = client.query("SELECT version() FORMAT TSV").decode("utf-8", "replace").strip()
    found = re.match(r"(\d+)\.(\d+)\.", told)
    if found is None:
        raise ServerUnfit(f"{url} is no ClickHouse: it tells no version")
    if (int(found[1]), int(found[2])) < _OLDEST:
        raise ServerUnfit(f"{url} is ClickHouse {told}; needed: 23.8 or later")
    client.query("SELECT count() FROM system.columns WHERE database = '' FORMAT TSV")
