"""Rows that are there with a version as high as a change's, or higher."""

from __future__ import annotations

from collections.abc import Sequence

from handlers.api import Batch
from handlers.clickhouse.client import ClickHouseClient
from handlers.clickhouse.tables import Table, Tables
from handlers.clickhouse.writing import key_of, last_versions
from handlers.progress.last_states import State
from handlers.progress.late_rows import Held, check_late
from handlers.progress.versions import Topic

__all__ = ["check_moved"]


def check_moved(
    at: tuple[ClickHouseClient, Tables, Table], batch: Batch, states: Sequence[State], *, base: int
) -> None:
    """See `check_late`. `base`: the option `epoch`. Raises RowMoved, RowRefused, and as ClickHouseClient."""
    client, tables, table = at

    def topics() -> Sequence[Topic] | None:
        now = tables.find(batch.database, batch.name)
        return None if now is None else now.memory.topics

    found = last_versions(client, table, states)
    name = f"the row with this key in {table.database}.{table.name}"
    for state in states:
        version, partition = found.get(key_of(table, state), (0, ""))
        check_late(batch, state, Held(name, version, partition or None), base=base, topics=topics)
