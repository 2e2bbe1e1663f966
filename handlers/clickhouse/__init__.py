"""The `clickhouse` handler: stores the rows of each table, or their versions, in a ReplacingMergeTree. At
least once: a repeated change has the same version, so it changes nothing."""

from handlers.clickhouse.client import ClickHouseOptions
from handlers.clickhouse.tables import Tables
from handlers.versioned.target import VersionedHandler

__all__ = ["ClickHouseHandler"]


class ClickHouseHandler(VersionedHandler):
    """Stores each row with a version that follows the source's order."""

    options_model = ClickHouseOptions
    dialect = Tables
