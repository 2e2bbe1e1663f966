"""TRUNCATE and DROP TABLE: rows that are older than the statement are deleted, each with a version."""

from __future__ import annotations

from handlers.clickhouse.client import ClickHouseClient, identifier, literal
from handlers.clickhouse.tables import Table

__all__ = ["empty"]


def empty(client: ClickHouseClient, table: Table, *, version: int, partition: str, time: int) -> int:
    """Delete what is older than a statement at this place; how many rows there were.

    Of its own partition that is by version: what comes after it stays, also when it comes again. Versions of
    other partitions tell nothing about it: of those, what the source changed before it by its clock. Each
    row leaves a deleted one: without, what comes late would be there again.
    """
    own = f"_partition = {literal(partition)}"
    older = f"({own} AND _version < {version} OR NOT ({own}) AND _source_time_ms < {int(time)})"
    where = f"FROM {table.sql} FINAL WHERE {older}"
    rows = int(client.query(f"SELECT count() {where} FORMAT TSV"))
    if rows:
        key = ", ".join(map(identifier, table.key))
        # A version of the statement's place would stop what comes of another partition: it is no place there.
        client.query(
            f"INSERT INTO {table.sql} ({key}, _version, _deleted, _partition, _source_time_ms) SELECT {key}, "
            f"if({own}, toUInt64({version}), _version + 1), 1, _partition, _source_time_ms {where}"
        )
    return rows
