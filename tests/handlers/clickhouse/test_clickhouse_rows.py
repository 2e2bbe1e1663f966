"""Rows under versions of the source's order, in ClickHouse's own engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from servers.clickhouse_server import ClickHouseServer

from handlers import Batch, Rejected
from handlers.clickhouse import ClickHouseHandler
from handlers.clickhouse.handler import RowMoved
from handlers.clickhouse.tables import TableUnfit
from handlers.progress.topic_ids import FormerTopic
from handlers.testing import make_batch, opened

TYPES = {"id": "int", "name": "varchar(40)"}


@pytest.fixture
def database(clickhouse: ClickHouseServer) -> str:
    return clickhouse.new_name()


@contextmanager
def handler(server: ClickHouseServer, **options: Any) -> Iterator[ClickHouseHandler]:
    with opened(ClickHouseHandler(**server.options, **options)) as made:
        yield made


def batch(database: str, *changes: Any, types: Any = TYPES, **more: Any) -> Batch:
    return make_batch(f"{database}.t", changes, **{"key": "id", "types": types, "topic": "cdc", **more})


def names(server: ClickHouseServer, database: str) -> dict[int, str]:
    return {row["id"]: row["name"] for row in server.rows(f"{database}.t")}


def test_what_comes_late_never_wins(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "name": "new"}, {"id": 2, "name": "gone"}, offset=10))
        it.handle(batch(database, {"before": {"id": 2, "name": "gone"}, "op": "delete"}, offset=20))
        it.handle(batch(database, {"id": 1, "name": "late"}, {"id": 2, "name": "late"}, offset=3))
        assert names(clickhouse, database) == {1: "new"}
        clickhouse.query(f"OPTIMIZE TABLE {database}.t FINAL")
        it.handle(batch(database, {"id": 1, "name": "late"}, {"id": 2, "name": "late"}, offset=3))
    assert names(clickhouse, database) == {1: "new"}, "also after a merge"


def test_rows_of_one_record_are_in_order(clickhouse: ClickHouseServer, database: str) -> None:
    changes = [{"after": {"id": 1, "name": name}, "offset": 5, "index": at} for at, name in enumerate("abc")]
    with handler(clickhouse) as it:
        for change in (changes[2], changes[0], changes[1]):
            it.handle(batch(database, change))
    assert names(clickhouse, database) == {1: "c"}


def test_a_key_that_changes_moves_its_row(clickhouse: ClickHouseServer, database: str) -> None:
    moved = [
        {"before": {"id": 1, "name": "a"}, "op": "delete", "offset": 1, "index": 0},
        {"after": {"id": 2, "name": "a"}, "offset": 1, "index": 1},
    ]
    with handler(clickhouse) as it:
        for _ in range(2):
            it.handle(batch(database, {"id": 1, "name": "a"}))
            it.handle(batch(database, *moved))
    assert names(clickhouse, database) == {2: "a"}


def test_what_was_written_is_there_after_a_kill(
    own_clickhouse: Callable[[], ClickHouseServer], tmp_path: Any
) -> None:
    server = own_clickhouse()
    with handler(server) as it:
        it.handle(batch("shop", *({"id": number, "name": "a"} for number in range(50))))
        server.kill()
        server.start()
        assert len(names(server, "shop")) == 50
        it.handle(batch("shop", {"id": 7, "name": "b"}, offset=50))
    assert names(server, "shop")[7] == "b"


def test_a_topic_made_anew_begins_a_later_epoch(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "name": "former"}, offset=900, topic_id="A"))
        it.handle(batch(database, {"id": 1, "name": "anew"}, offset=0, topic_id="B"))
        with pytest.raises(FormerTopic):
            it.handle(batch(database, {"id": 1, "name": "former"}, offset=901, topic_id="A"))
    with handler(clickhouse, topic_again={"A": ["B"]}) as it:
        it.handle(batch(database, {"id": 1, "name": "again"}, offset=0, topic_id="A"))
    assert names(clickhouse, database) == {1: "again"}


def test_a_replayed_dead_letter_beats_nothing_newer(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "name": "new"}, offset=20))
        for key, offset in ((1, 12), (2, 13)):
            letter = batch(database, {"id": key, "name": "letter"}, topic="dead", offset=5_000)
            letter.replay_of = ("cdc", 0, offset)
            it.handle(letter)
    assert names(clickhouse, database) == {1: "new", 2: "letter"}


def test_a_row_that_changed_its_partition_is_a_fault_until_an_epoch_is_begun(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "name": "a"}, {"id": 2, "name": "a"}, offset=100))
        it.handle(batch(database, {"id": 3, "name": "b"}, partition=1))
        with pytest.raises(RowMoved, match=r"cdc\[0\].*epoch: 1"):
            it.handle(batch(database, {"id": 1, "name": "b"}, offset=1, partition=1))
        it.handle(batch(database, {"id": 1, "name": "a"}, offset=50))
    with handler(clickhouse, epoch=1) as it:
        it.handle(batch(database, {"id": 1, "name": "b"}, offset=1, partition=1))
    assert names(clickhouse, database) == {1: "b", 2: "a", 3: "b"}


def test_a_lower_epoch_than_the_table_was_written_under_is_refused(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse, epoch=1) as it:
        it.handle(batch(database, {"id": 1, "name": "a"}))
    with handler(clickhouse) as it, pytest.raises(TableUnfit, match="option epoch: 1, it is 0 here"):
        it.handle(batch(database, {"id": 1, "name": "b"}, offset=1))
    with handler(clickhouse, epoch=1) as it:
        it.handle(batch(database, {"id": 1, "name": "b"}, offset=1))
    assert names(clickhouse, database) == {1: "b"}


def test_an_update_that_lacks_columns_leaves_them(clickhouse: ClickHouseServer, database: str) -> None:
    types = {**TYPES, "total": "decimal(6,2)", "at": "datetime", "data": "blob", "ratio": "double"}
    whole = {"id": 1, "name": "it's", "total": None, "data": b"\x00\xff`'\\", "ratio": 1e300}
    with handler(clickhouse) as it:
        it.handle(batch(database, whole, {"id": 2, "name": "b", "ratio": 0.1}, types=types))
        before = clickhouse.query(f"SELECT hex(data), ratio = 1e300 FROM {database}.t FINAL WHERE id = 1")
        update = {"before": {"id": 1}, "after": {"id": 1, "name": "new"}}
        it.handle(batch(database, update, types=types, offset=9))
    after = clickhouse.query(f"SELECT hex(data), ratio = 1e300 FROM {database}.t FINAL WHERE id = 1")
    assert after == before == "00FF60275C\t1\n"
    assert names(clickhouse, database) == {1: "new", 2: "b"}


def test_a_row_without_a_key_or_with_a_name_of_ours_is_rejected_alone(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse) as it:
        for wrong in ({"id": None, "name": "a"}, {"id": 2, "_version": 1}):
            with pytest.raises(Rejected) as found:
                it.handle(batch(database, {"id": 1, "name": "a"}, wrong))
            assert found.value.at == 1
        with pytest.raises(Rejected):
            it.handle(batch(database, {"name": "a"}, key=None))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            "(id Int32, _version UInt64, _deleted UInt8) ENGINE = MergeTree ORDER BY id",
            "has the engine MergeTree",
        ),
        ("(id Int32, _version UInt64, _deleted UInt8) ENGINE = R ORDER BY id", "needs a column _partition"),
        ("({}, b Int32) ENGINE = R ORDER BY (id, b)", "is ordered by"),
        ("({}) ENGINE = R ORDER BY id % 7", "is ordered by"),
        ('({}) ENGINE = R ORDER BY id COMMENT \'mine binlane: {{"table":"o.t"}}\'', "holds the rows of o.t"),
        ("({}, name Array(String)) ENGINE = R ORDER BY id", "name is Array"),
    ],
)
def test_a_table_of_others_that_cannot_be_written_to_is_a_fault(
    clickhouse: ClickHouseServer, database: str, made: str, told: str
) -> None:
    own = (
        "id Int32, _version UInt64, _deleted UInt8, _partition LowCardinality(String), _source_time_ms Int64"
    )
    text = made.format(own).replace("= R ", "= ReplacingMergeTree(_version, _deleted) ")
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(f"CREATE TABLE {database}.t {text}")
    with handler(clickhouse) as it, pytest.raises(TableUnfit, match=told):
        it.handle(batch(database, {"id": 1, "name": "a"}))


def test_a_table_and_a_comment_of_others_are_kept(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, create=False) as it, pytest.raises(TableUnfit, match="create is false"):
        it.handle(batch(database, {"id": 1, "name": "a"}))
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (name LowCardinality(Nullable(String)), id Int128, _version UInt64, "
        "_deleted UInt8, _partition String, _source_time_ms Int64) "
        "ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY id COMMENT 'mine: \\'it\\''"
    )
    with handler(clickhouse, create=False) as it:
        for offset in range(2):
            it.handle(batch(database, {"id": 1, "name": f"a{offset}"}, offset=offset))
    assert names(clickhouse, database) == {1: "a1"}
    assert "mine: 'it' binlane: {" in clickhouse.query(
        f"SELECT comment FROM system.tables WHERE database = '{database}' FORMAT TSVRaw"
    )
