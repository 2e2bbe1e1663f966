"""The `clickhouse` handler: the rows as they are now, in a ReplacingMergeTree for each table."""

from handlers.clickhouse.options import ClickHouseOptions
from handlers.clickhouse.tables import Tables
from handlers.versioned.handler import VersionedHandler

__all__ = ["ClickHouseHandler"]


class ClickHouseHandler(VersionedHandler):
    """Keeps each row under a version of the source's order."""

    options_model = ClickHouseOptions
    dialect = Tables
