"""`binlane check --connect`: which server is there, and whether it does what is needed."""

from __future__ import annotations

import re

from handlers.clickhouse.client import ClickHouseClient
from handlers.versioned.memory import Unfit

_OLDEST = (23, 8)
"""`is_deleted` of ReplacingMergeTree, `COMMENT`s of tables, `format()` with its data."""


def check_server(client: ClickHouseClient, url: str) -> None:
    """Changes nothing. Raises Unfit, and as ClickHouseClient."""
    told = client.query("SELECT version() FORMAT TSV").decode("utf-8", "replace").strip()
    found = re.match(r"(\d+)\.(\d+)\.", told)
    if found is None:
        raise Unfit(f"{url} is no ClickHouse: it tells no version")
    if (int(found[1]), int(found[2])) < _OLDEST:
        raise Unfit(f"{url} is ClickHouse {told}; needed: 23.8 or later")
    client.query("SELECT count() FROM system.columns WHERE database = '' FORMAT TSV")
