"""Rows under versions of the source's order, in ClickHouse's own engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clickhouse_lab import TYPES, handler, names
from servers.clickhouse_server import ClickHouseServer
from structlog.testing import capture_logs

from handlers import Batch, Rejected
from handlers.clickhouse.client import ClickHouseClient
from handlers.clickhouse.tables import Tables
from handlers.failures import UnfitPlace
from handlers.progress import FormerTopic
from handlers.testing import make_batch
from handlers.versioned.row_states import RowMoved
from handlers.versioned.target import ColumnsChanged
from handlers.versioned.versions import Unfit, UnfitColumn


def batch(database: str, *changes: Any, types: Any = TYPES, **more: Any) -> Batch:
    return make_batch(f"{database}.t", changes, **{"key": "id", "types": types, "topic": "cdc", **more})


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


def test_rows_wait_while_a_view_of_their_table_lacks_what_it_writes_to(
    clickhouse: ClickHouseServer, database: str
) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 0, "name": "z"}))
        clickhouse.query(f"CREATE TABLE {database}.seen (id Int64) ENGINE = MergeTree ORDER BY id")
        clickhouse.query(
            f"CREATE MATERIALIZED VIEW {database}.v TO {database}.seen AS SELECT id FROM {database}.t"
        )
        clickhouse.query(f"RENAME TABLE {database}.seen TO {database}.aside")
        with pytest.raises(UnfitPlace, match=r"Target table .*seen"):
            it.handle(batch(database, *rows, offset=1))
        clickhouse.query(f"CREATE VIEW {database}.seen AS SELECT id FROM {database}.aside")
        with pytest.raises(UnfitPlace, match="NOT_IMPLEMENTED"):
            it.handle(batch(database, *rows, offset=1))
        clickhouse.query(f"DROP VIEW {database}.seen")
        clickhouse.query(f"RENAME TABLE {database}.aside TO {database}.seen")
        it.handle(batch(database, *rows, offset=1))
    assert names(clickhouse, database) == {0: "z", 1: "a", 2: "b"}
    assert clickhouse.query(f"SELECT count() FROM {database}.seen FORMAT TSV") == "2\n"


def test_rows_wait_while_a_view_of_their_table_lacks_a_table_that_it_reads(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """It is made anew, say. A server looks for it only when there are rows."""
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 0, "name": "z"}))
        for name in ("seen", "more"):
            clickhouse.query(f"CREATE TABLE {database}.{name} (id Int64) ENGINE = MergeTree ORDER BY id")
        clickhouse.query(
            f"CREATE MATERIALIZED VIEW {database}.v TO {database}.seen AS "
            f"SELECT id FROM {database}.t LEFT JOIN {database}.more USING (id)"
        )
        clickhouse.query(f"RENAME TABLE {database}.more TO {database}.aside")
        with pytest.raises(UnfitPlace, match=r"more.* pushing to view"):
            it.handle(batch(database, {"id": 1, "name": "a"}, offset=1))
        clickhouse.query(f"RENAME TABLE {database}.aside TO {database}.more")
        it.handle(batch(database, {"id": 1, "name": "a"}, offset=1))
    assert names(clickhouse, database) == {0: "z", 1: "a"}


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
    with handler(clickhouse) as it, capture_logs() as logs:
        it.handle(batch(database, {"id": 1, "name": "former"}, offset=900, topic_id="A"))
        it.handle(batch(database, {"id": 1, "name": "anew"}, offset=0, topic_id="B"))
        with pytest.raises(FormerTopic):
            it.handle(batch(database, {"id": 1, "name": "former"}, offset=901, topic_id="A"))
    [told] = [line for line in logs if line["event"] == "topic_made_anew"]
    assert (told["former_id"], told["topic_id"]) == ("A", "B")
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


def test_a_dead_letter_does_not_lose_unheard_to_the_option_epoch(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """It has no such epoch, so any row that was written under one has the higher version."""
    with handler(clickhouse, epoch=1) as it:
        it.handle(batch(database, {"id": 1, "name": "old"}, offset=1))
        letter = batch(database, {"id": 1, "name": "letter"}, topic="dead", offset=5_000)
        letter.replay_of = ("cdc", 0, 12)
        with pytest.raises(RowMoved, match="was written with the option epoch"):
            it.handle(letter)
        other = batch(database, {"id": 2, "name": "letter"}, topic="dead", offset=5_001)
        other.replay_of = ("cdc", 0, 13)
        it.handle(other)
    assert names(clickhouse, database) == {1: "old", 2: "letter"}


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


def test_a_row_that_comes_back_to_a_former_topic_is_a_fault_until_an_epoch_is_begun(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """Each topic that a table is fed from has an epoch, and the first one the lowest."""
    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "name": "a"}, offset=5, topic="former"))
        it.handle(batch(database, {"id": 1, "name": "b"}, offset=50, topic="other"))
        with pytest.raises(RowMoved, match=r"is of other\[0\].*option epoch: 2"):
            it.handle(batch(database, {"id": 1, "name": "c"}, offset=6, topic="former"))
    with handler(clickhouse, epoch=2) as it:
        it.handle(batch(database, {"id": 1, "name": "c"}, offset=6, topic="former"))
    assert names(clickhouse, database) == {1: "c"}


def test_what_is_deleted_counts_though_the_users_profile_hides_it(
    own_clickhouse: Callable[[], ClickHouseServer],
) -> None:
    server = own_clickhouse()
    server.query("SET final = 1")
    with handler(server) as it:
        it.handle(batch("shop", {"id": 2, "name": "b"}, partition=1))
        it.handle(batch("shop", {"before": {"id": 1}, "op": "delete"}, offset=100))
        with pytest.raises(RowMoved, match=r"cdc\[0\]"):
            it.handle(batch("shop", {"id": 1, "name": "c"}, offset=3, partition=1))


def test_a_lower_epoch_than_the_table_was_written_under_is_refused(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse, epoch=1) as it:
        it.handle(batch(database, {"id": 1, "name": "a"}))
    with handler(clickhouse) as it, pytest.raises(Unfit, match="option epoch: 1, but it is 0 here"):
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


@pytest.mark.parametrize("becomes", ["Nullable(Int64)", "Nullable(String)"])
def test_a_column_whose_type_is_changed_between_a_look_and_an_insert_takes_the_values_as_they_are(
    clickhouse: ClickHouseServer, database: str, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    types = {"id": "int", "n": "int", "m": "int"}
    insert = ClickHouseClient.insert

    def late(client: ClickHouseClient, *args: Any) -> None:
        monkeypatch.undo()
        clickhouse.query(f"ALTER TABLE {database}.t MODIFY COLUMN n {becomes}")
        insert(client, *args)

    with handler(clickhouse) as it:
        it.handle(batch(database, {"id": 1, "n": 1, "m": 1}, types=types))
        monkeypatch.setattr(ClickHouseClient, "insert", late)
        changes = [{"id": number, "n": 258, "m": number} for number in (2, 3)]
        with pytest.raises(ColumnsChanged, match="trying again"):
            it.handle(batch(database, *changes, types=types, offset=5))
        it.handle(batch(database, *changes, types=types, offset=5))
    found = clickhouse.query(f"SELECT id, toString(n), m FROM {database}.t FINAL ORDER BY id FORMAT TSV")
    assert found == "1\t1\t1\n2\t258\t2\n3\t258\t3\n"


def test_of_two_that_add_a_column_by_values_of_different_types_one_is_told(
    clickhouse: ClickHouseServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without types the first value decides: rows of one table may be written by several at once."""
    with handler(clickhouse) as it, handler(clickhouse) as other:
        it.handle(batch(database, {"id": 1}, types=None))
        find = Tables.find

        def late(tables: Tables, *named: str) -> Any:
            found = find(tables, *named)
            monkeypatch.undo()
            other.handle(batch(database, {"id": 2, "note": 7}, types=None, offset=1))
            return found

        monkeypatch.setattr(Tables, "find", late)
        with pytest.raises(Rejected, match="not a whole number: 'seven'"):
            it.handle(batch(database, {"id": 3, "note": "seven"}, types=None, offset=2))
    assert clickhouse.query(f"SELECT id, note FROM {database}.t FINAL ORDER BY id") == "1\t\\N\n2\t7\n"


def test_no_more_is_read_of_rows_that_lack_columns_than_one_insert_may_hold(
    clickhouse: ClickHouseServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [{"id": number, "name": f"{number}" * 20_000} for number in range(8)]
    types = {**TYPES, "n": "int"}
    partial = [{"before": {"id": number}, "after": {"id": number, "n": 1}} for number in range(8)]
    answers = []
    query = ClickHouseClient.query

    def noted(client: ClickHouseClient, sql: str) -> bytes:
        answers.append(found := query(client, sql))
        return found

    with handler(clickhouse, max_bytes="50KiB") as it:
        it.handle(batch(database, *large, types=types))
        monkeypatch.setattr(ClickHouseClient, "query", noted)
        it.handle(batch(database, *partial, {"id": 9, "name": "whole", "n": 1}, types=types, offset=10))
    assert max(map(len, answers)) < 50 << 10
    assert names(clickhouse, database) == {**{row["id"]: row["name"] for row in large}, 9: "whole"}
    assert clickhouse.query(f"SELECT sum(n) FROM {database}.t FINAL") == "9\n"


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
        (
            '({}, _binlane_memory_1 UInt8 ALIAS 0 COMMENT \'{{"table":"o.t"}}\') ENGINE = R ORDER BY id',
            "has the rows of o.t",
        ),
        ("({}, name Array(String)) ENGINE = R ORDER BY id", "name is Array"),
        ("({}, name String) ENGINE = R ORDER BY id PARTITION BY lower(name)", "PARTITION BY with name"),
        ("({}) ENGINE = R ORDER BY id PARTITION BY _source_time_ms % 7", "PARTITION BY with _source_time_ms"),
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
    with handler(clickhouse) as it, pytest.raises((Unfit, UnfitColumn), match=told):
        it.handle(batch(database, {"id": 1, "name": "a"}))


def test_a_table_and_a_comment_of_others_are_kept(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, create=False) as it, pytest.raises(Unfit, match="create is false"):
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
    shown = clickhouse.query(f"SELECT comment FROM system.tables WHERE database = '{database}' FORMAT TSVRaw")
    assert shown == "mine: 'it'\n"
