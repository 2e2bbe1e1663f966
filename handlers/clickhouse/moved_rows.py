"""Rows that are there with a version as high as a change's, or higher: whether the change is late."""

from __future__ import annotations

from collections.abc import Sequence

from handlers.api import Batch
from handlers.clickhouse.client import ClickHouseClient
from handlers.clickhouse.tables import Table, Tables
from handlers.clickhouse.writing import key_of, last_versions
from handlers.options.templates import place_of
from handlers.progress.last_states import State, topic_of
from handlers.progress.versions import EPOCH_BITS, has_reached

__all__ = ["RowMoved", "check_moved"]


class RowMoved(Exception):
    """Versions cannot tell which of two changes of a row is the later one."""


def check_moved(
    at: tuple[ClickHouseClient, Tables, Table], batch: Batch, states: Sequence[State], *, base: int
) -> None:
    """That what is there instead of a late change is of its partition, whose offsets are an order, or of a
    later epoch of its topic. `base`: the option `epoch`.

    Raises RowMoved, RowRefused, and as ClickHouseClient.
    """
    client, tables, table = at
    found = last_versions(client, table, states)
    for state in states:
        version, partition = found.get(key_of(table, state), (0, state.partition))
        if version < state.version:
            continue
        epochs_later = (version - 1 >> EPOCH_BITS) - (state.version - 1 >> EPOCH_BITS)
        topic, held = topic_of(state.partition), f"of {partition or 'another writer'}"
        if epochs_later <= 0:
            is_late = partition == state.partition
        elif batch.replay_of is not None:
            is_late = True  # what is a letter loses against all
        elif topic_of(partition) == topic:
            is_late = _has_begun(tables, batch, topic, base, version)
            held = "of a later epoch than any that the table remembers (was it copied, or a column dropped?)"
        else:
            is_late = False
        if not is_late:
            raise RowMoved(
                f"{place_of(batch.changes[state.at], batch.table)}: the row with this key in "
                f"{table.database}.{table.name} is {held}, with a version as high or higher: which of the "
                f"two is later cannot be told. All changes of a row have to come from one partition. If the "
                f"topic has others now, let what comes win: option epoch: {base + 1 + max(0, epochs_later)}"
            )


def _has_begun(tables: Tables, batch: Batch, topic: str, base: int, version: int) -> bool:
    """Whether the topic has come to the epoch of this version: by another worker since the batch began."""
    table = tables.find(batch.database, batch.name)
    return table is None or has_reached(table.memory.topics, topic, base=base, version=version)
