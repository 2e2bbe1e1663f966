"""The `clickhouse` handler: a row for each change, under a version of the source's order."""

from __future__ import annotations

from handlers.clickhouse.options import ClickHouseOptions
from handlers.clickhouse.tables import Tables
from handlers.versioned.handler import VersionedHandler


class ClickHouseHandler(VersionedHandler):
    options_model = ClickHouseOptions
    dialect = Tables
