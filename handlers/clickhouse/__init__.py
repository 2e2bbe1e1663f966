"""The `clickhouse` handler: the rows as they are now, in a ReplacingMergeTree for each table."""

from handlers.clickhouse.handler import ClickHouseHandler

__all__ = ["ClickHouseHandler"]
