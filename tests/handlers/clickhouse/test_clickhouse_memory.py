"""What a table remembers of where it is fed from; of several workers at once see targets/."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from clickhouse_lab import TYPES, handler, names
from servers.clickhouse_server import ClickHouseServer

from handlers import Batch
from handlers.clickhouse.tables import Tables
from handlers.testing import make_batch
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import Unfit


def batch(database: str, number: int, name: str, **more: Any) -> Batch:
    row = {"id": number, "name": name}
    return make_batch(f"{database}.t", [row], **{"key": "id", "types": TYPES, "topic": "cdc", **more})


def memories(server: ClickHouseServer, database: str) -> list[str]:
    found = server.query(
        f"SELECT name FROM system.columns WHERE database = '{database}' AND name LIKE '_binlane%' FORMAT TSV"
    )
    return found.split()


def forget(server: ClickHouseServer, database: str) -> None:
    for name in memories(server, database):
        server.query(f"ALTER TABLE {database}.t DROP COLUMN {name}")


def remember(server: ClickHouseServer, database: str, **memory: Any) -> None:
    text = json.dumps({"table": f"{database}.t", **memory})
    server.query(f"ALTER TABLE {database}.t ADD COLUMN _binlane_memory_1 UInt8 ALIAS 0 COMMENT '{text}'")


def test_a_topic_keeps_its_epoch_though_one_that_looked_earlier_remembers_later(
    clickhouse: ClickHouseServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write what it saw over what was remembered meanwhile; then later changes lose, untold."""
    remember, has_looked, others_are_done = Tables.remember, threading.Event(), threading.Event()

    def late(tables: Tables, *given: Any) -> Any:
        if threading.current_thread() is frozen and not has_looked.is_set():
            has_looked.set()
            assert others_are_done.wait(60)
        return remember(tables, *given)

    monkeypatch.setattr(Tables, "remember", late)
    with handler(clickhouse) as it, handler(clickhouse) as other:
        clickhouse.query(f"CREATE DATABASE {database}")
        clickhouse.query(
            f"CREATE TABLE {database}.t (id Int32, name String, _version UInt64, _deleted UInt8, "
            "_partition LowCardinality(String), _source_time_ms Int64) "
            "ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY id"
        )
        frozen = threading.Thread(target=other.handle, args=(batch(database, 3, "c", partition=1),))
        frozen.start()
        assert has_looked.wait(60)
        it.handle(batch(database, 2, "b", topic="former"))
        it.handle(batch(database, 1, "a"))
        others_are_done.set()
        frozen.join()
        for offset, name in ((1, "later"), (2, "last")):
            it.handle(batch(database, 1, name, offset=offset))
    assert names(clickhouse, database) == {1: "last", 2: "b", 3: "c"}
    epochs = f"arraySort(groupUniqArray(intDiv(_version - 1, {1 << 56})))"
    found = clickhouse.query(
        f"SELECT {epochs} FROM {database}.t GROUP BY splitByChar('[', _partition)[1] ORDER BY ALL FORMAT TSV"
    )
    assert found == "[0]\n[1]\n", "of each topic"


def test_a_table_has_no_more_memories_than_there_were_topics_and_partitions(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        for partition in (0, 1, 2, 3, 0):
            it.handle(batch(database, partition, "a", partition=partition))
    assert memories(clickhouse, database) == ["_binlane_memory_1", "_binlane_memory_2"]


@pytest.mark.parametrize("comment", ["", "orders of our shop"])
def test_rows_whose_topics_are_forgotten_are_a_fault_until_an_epoch_is_begun(
    clickhouse: ClickHouseServer, database: str, comment: str
) -> None:
    """As in a copy of the rows alone: a topic made anew would begin at the first epoch again."""
    with handler(clickhouse) as it:
        it.handle(batch(database, 1, "former", offset=9, topic_id="A"))
        it.handle(batch(database, 1, "anew", offset=5, topic_id="B"))
        forget(clickhouse, database)
        clickhouse.query(f"ALTER TABLE {database}.t MODIFY COMMENT '{comment}'")
        with pytest.raises(Unfit, match=r"not the topics they came from .* option epoch: 2"):
            it.handle(batch(database, 1, "new", offset=6, topic_id="B"))
    assert names(clickhouse, database) == {1: "anew"}
    with handler(clickhouse, epoch=2) as it:
        for offset, name in ((6, "new"), (7, "newer")):
            it.handle(batch(database, 1, name, offset=offset, topic_id="B"))
    assert names(clickhouse, database) == {1: "newer"}


def test_a_later_epoch_than_the_table_remembers_is_a_fault_for_a_row_of_the_same_partition_too(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, 2, "b", topic="former"))
        it.handle(batch(database, 1, "a", offset=1))
        forget(clickhouse, database)
        remember(clickhouse, database, topics=[["cdc", None]], partitions=["cdc[0]", "former[0]"])
        with pytest.raises(RowMoved, match=r"later epoch than any that the target remembers.*epoch: 2"):
            it.handle(batch(database, 1, "lost", offset=2))


def test_a_memory_that_somebody_has_changed_is_a_fault(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, 1, "a"))
        clickhouse.query(f"ALTER TABLE {database}.t COMMENT COLUMN _binlane_memory_1 'ours'")
        with pytest.raises(Unfit, match=r"the contents of .*_binlane_memory_1 cannot be read"):
            it.handle(batch(database, 1, "b", offset=1))
