"""Versions of rows in ClickHouse, where they differ from those of `targets/test_histories.py`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from clickhouse_lab import handler
from servers.clickhouse_server import ClickHouseServer

from handlers import Batch, Rejected
from handlers.clickhouse import ClickHouseHandler
from handlers.testing import make_batch
from handlers.versioned import row_states
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import Unfit

TYPES = {"id": "int", "name": "varchar(40)"}


def batch(database: str, *changes: Any, **more: Any) -> Batch:
    return make_batch(f"{database}.t", changes, **{"key": "id", "types": TYPES, "topic": "cdc", **more})


def change(second: int, name: str | None, id_: int = 1, **more: Any) -> dict[str, Any]:
    row = {"id": id_, "name": name}
    return {"source_time_ms": 1000 * second, "before": row, "after": row, "op": "update", **more}


def letter(database: str, *changes: Any, offset: int) -> Batch:
    """Replayed."""
    made = batch(database, *changes, topic="dead", offset=900)
    made.replay_of = ("cdc", 0, offset)
    return made


def versions(server: ClickHouseServer, database: str) -> list[tuple[Any, ...]]:
    """(id, name, start, end), the times in seconds."""
    found = server.query(
        "SELECT id, name, toUnixTimestamp(__START_AT), toUnixTimestamp(__END_AT) "
        f"FROM {database}.t FINAL ORDER BY id, _opened FORMAT JSONCompactEachRow"
    )
    return [tuple(json.loads(line)) for line in found.splitlines()]


def told_late() -> Any:
    """The replay fails, so the letter does not count as replayed: the history lacks its value."""
    return pytest.raises(Rejected, match="the history has a later change of the row")


def test_a_dead_letter_of_a_row_that_has_changed_since_opens_no_version(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), {**change(30, "c"), "offset": 12}, offset=10))
        for name, offset, id_ in (("late", 5, 1), ("between", 11, 1), ("other", 12, 2)):
            for _ in range(2):
                with told_late() if id_ == 1 else nullcontext():
                    it.handle(letter(database, change(20, name, id_), offset=offset))
        both = {**change(20, "late"), "offset": 5}, {**change(20, "new", 3), "offset": 5}
        for _ in range(2):
            with told_late():
                it.handle(letter(database, *both, offset=5))
        it.handle(batch(database, change(40, "d"), offset=13))
    assert versions(clickhouse, database) == [
        (1, "a", 10, 30),
        (1, "c", 30, 40),
        (1, "d", 40, None),
        (2, "other", 20, None),
        (3, "new", 20, None),
    ]


def test_a_dead_letter_under_a_key_that_stays_says_nothing_late(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """With `deletes: ignore`, the row under the former key does not change."""
    moved = {"offset": 5, "moves_key": True}
    stays = change(20, None, **moved, before={"id": 1}, after={"id": 1})
    made = change(20, "m", 2, op="insert", **moved, index=1)
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), {**change(30, "c"), "offset": 9}))
        for _ in range(2):
            it.handle(letter(database, stays, made, offset=5))
    assert versions(clickhouse, database) == [(1, "a", 10, 30), (1, "c", 30, None), (2, "m", 20, None)]


def test_a_dead_letter_loses_against_changes_without_effect(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), change(10, "x", 2), offset=1))
        gone, same = change(30, "c", 3, op="delete", after=None), change(30, "a", op="snapshot")
        it.handle(batch(database, gone, same, change(30, "x", 2, op="delete", after=None), offset=8))
        it.handle(batch(database, change(40, "x", 2, op="delete", after=None), offset=12))
        for offset, name, id_ in ((5, "b", 1), (11, "y", 2), (5, "c", 3)):
            with told_late():
                it.handle(letter(database, change(20, name, id_), offset=offset))
        assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "x", 10, 30)]
        it.handle(batch(database, change(50, "x", 2), change(50, "c", 3), offset=20))
    assert versions(clickhouse, database) == [
        *((1, "a", 10, None), (2, "x", 10, 30)),
        *((2, "x", 50, None), (3, "c", 50, None)),
    ]


def test_zeros_with_and_without_a_sign_are_one_key(clickhouse: ClickHouseServer, database: str) -> None:
    types, zeros = {**TYPES, "id": "double"}, (0.0, -0.0, 0.0, -0.0)
    rows = [change(10 + second, "abcd"[second]) for second in range(4)]
    for one, zero in zip(rows, zeros, strict=True):
        one["before"] = one["after"] = {"id": zero, "name": one["after"]["name"]}
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, *rows[:2], types=types))
        for number in (2, 3):
            it.handle(batch(database, rows[number], types=types, offset=number))
    periods = [each[1:] for each in versions(clickhouse, database)]
    assert periods == [("a", 10, 11), ("b", 11, 12), ("c", 12, 13), ("d", 13, None)]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_set_aside_hides_no_earlier_letter(
    clickhouse: ClickHouseServer, database: str, is_known: bool
) -> None:
    """Of the second change, the server has accepted the other row, or the delete of an unknown one."""
    after = {"id": 1, "name": "b"} if is_known else None
    half = {"offset": 5, "moves_key": True}
    gone = change(20, "bad", op="update" if is_known else "delete") | half | {"after": after}
    made = change(20, "bad", 3, op="insert") | half | {"index": 1}
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK _deleted OR name != 'bad'")
        for given in ((change(15, "bad") | {"offset": 4},), (gone, made)):
            with pytest.raises(Rejected):
                it.handle(batch(database, *given))
        clickhouse.query(f"ALTER TABLE {database}.t DROP CONSTRAINT c")
        it.handle(letter(database, change(15, "bad"), offset=4))
        it.handle(letter(database, gone, made, offset=5))
        with told_late():
            it.handle(letter(database, change(15, "other"), offset=3))
    moved = [(1, "bad", 15, 20), *([(1, "b", 20, None)] if is_known else [])]
    assert versions(clickhouse, database) == [*moved, (2, "a", 10, None), (3, "bad", 20, None)]


@pytest.mark.parametrize("name", ["_version", "_deleted", "_partition", "_source_time_ms", "_opened"])
def test_columns_of_binlane_hold_no_period(name: str) -> None:
    options = {"url": "http://localhost:8123", "mode": "history"}
    for key in ("start_column", "end_column"):
        with pytest.raises(ValueError, match=f"start_column and end_column cannot be {name}"):
            ClickHouseHandler(**options, **{key: name})
    ClickHouseHandler(url=options["url"], start_column=name)


@pytest.mark.parametrize("is_letter", [False, True])
def test_a_version_whose_end_was_not_written_gets_it(
    clickhouse: ClickHouseServer, database: str, is_letter: bool
) -> None:
    """As after a crash between the two inserts. A server that refuses the end makes its table wait."""
    changes = change(20, "b"), change(30, "c", offset=5, index=1)
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'a' OR __END_AT IS NULL")
        for _ in range(2):
            given = letter(database, *changes, offset=5) if is_letter else batch(database, *changes, offset=5)
            with pytest.raises(Unfit, match="it refuses the end of a version"):
                it.handle(given)
            assert [each[3] for each in versions(clickhouse, database)] == [None, None, None]
        clickhouse.query(f"ALTER TABLE {database}.t DROP CONSTRAINT c")
        it.handle(given)
    assert versions(clickhouse, database) == [(1, "a", 10, 20), (1, "b", 20, 30), (1, "c", 30, None)]


@pytest.mark.parametrize("condition", ["", "DELETE WHERE __END_AT IS NOT NULL AND _deleted = 0"])
def test_a_ttl_that_removes_ends_of_versions_makes_the_table_wait(
    clickhouse: ClickHouseServer, database: str, condition: str
) -> None:
    ttl = f"ALTER TABLE {database}.t MODIFY TTL {{}} + INTERVAL 90 YEAR"
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        clickhouse.query(f"{ttl.format('assumeNotNull(__END_AT)')} {condition}")
        with pytest.raises(Unfit, match=r"a TTL by __END_AT, .* use __START_AT instead"):
            it.handle(batch(database, change(20, "b"), offset=1))
        assert versions(clickhouse, database) == [(1, "a", 10, None)]
        clickhouse.query(ttl.format("__START_AT"))
        it.handle(batch(database, change(20, "b"), offset=1))
    assert versions(clickhouse, database) == [(1, "a", 10, 20), (1, "b", 20, None)]


@pytest.mark.parametrize("statement", [("truncate", "TRUNCATE TABLE t"), ("ddl", "DROP TABLE t")])
def test_a_replica_empties_no_history(
    clickhouse: ClickHouseServer, database: str, statement: tuple[str, str]
) -> None:
    op, sql = statement
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
    with handler(clickhouse, drop_tables=True) as it, pytest.raises(Unfit, match="ordered by id, _opened"):
        it.handle(batch(database, {"op": op, "sql": sql, "source_time_ms": 20_000}, offset=1))
    assert versions(clickhouse, database) == [(1, "a", 10, None)]


def test_changes_of_a_row_in_two_partitions_are_told(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), offset=3))
        it.handle(batch(database, change(10, "x", 2), partition=1))
        both = change(20, "b", offset=1), change(21, "c", offset=5)
        with pytest.raises(RowMoved):
            it.handle(batch(database, *both, partition=1))
    assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "x", 10, None)]


def test_a_topic_made_anew_continues_the_history(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), offset=900, topic_id="A"))
        for _ in range(2):
            it.handle(batch(database, change(20, "a", op="snapshot"), change(30, "b"), topic_id="B"))
    assert versions(clickhouse, database) == [(1, "a", 10, 30), (1, "b", 30, None)]


def test_a_truncate_of_another_topic_ends_what_was_older(clickhouse: ClickHouseServer, database: str) -> None:
    truncate = {"op": "truncate", "sql": "TRUNCATE TABLE t", "source_time_ms": 25_000}
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), change(10, "x", 2), change(30, "y", 2), offset=7))
        for _ in range(2):
            it.handle(batch(database, truncate, topic="ddl"))
        it.handle(batch(database, change(10, "a"), change(10, "x", 2), change(30, "y", 2), offset=7))
        it.handle(batch(database, change(20, "b"), offset=10))
    assert versions(clickhouse, database) == [
        (1, "a", 10, 25),
        (1, "b", 25, None),
        (2, "x", 10, 30),
        (2, "y", 30, None),
    ]


def test_a_version_that_the_server_refuses_ends_none(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'bad'")
        with pytest.raises(Rejected) as told:
            it.handle(batch(database, change(20, "bad"), offset=1))
        assert told.value.at == 0
        assert versions(clickhouse, database) == [(1, "a", 10, None)]
        it.handle(batch(database, change(30, "c"), offset=2))
    assert versions(clickhouse, database) == [(1, "a", 10, 30), (1, "c", 30, None)]


def test_a_version_that_the_server_refuses_ends_none_of_its_batch(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """The worker repeats the changes before a refused one on their own."""
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(1, "z", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'bad'")
        with pytest.raises(Rejected) as told:
            it.handle(batch(database, change(10, "a"), change(20, "bad"), offset=1))
        assert told.value.at == 1
        it.handle(batch(database, change(10, "a"), offset=1))
        assert versions(clickhouse, database)[0] == (1, "a", 10, None)
        with pytest.raises(Rejected) as told:
            it.handle(batch(database, change(30, "bad"), change(40, "d"), offset=3))
        assert told.value.at == 0
        it.handle(batch(database, change(40, "d"), offset=4))
    assert versions(clickhouse, database) == [(1, "a", 10, 40), (1, "d", 40, None), (2, "z", 1, None)]


def test_a_row_that_the_server_refuses_under_a_new_key_stays_under_the_old_one(
    clickhouse: ClickHouseServer, database: str
) -> None:
    with handler(clickhouse, mode="history", max_bytes=9) as it:
        it.handle(batch(database, change(10, "a"), change(10, "b", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'bad'")
        half = {"moves_key": True, "offset": 5}
        gone, made = change(20, "a", op="delete", after=None), change(20, "bad", 3, op="insert")
        with pytest.raises(Rejected):
            it.handle(batch(database, change(20, "c", 2), gone | half, made | half | {"index": 1}, offset=4))
    assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "b", 10, 20), (2, "c", 20, None)]


@pytest.mark.parametrize("condition", ["name != 'bad'", "_deleted OR name != 'bad'"])
@pytest.mark.parametrize("is_move", [False, True])
def test_rows_that_are_set_aside_with_a_refused_one_get_no_version(
    clickhouse: ClickHouseServer, database: str, is_move: bool, condition: str
) -> None:
    """A transform has made both of one change. Or the row was marked under its old key, and moved."""
    both = {"moves_key": is_move, "offset": 5}
    made = change(20, "b") | both, change(20, "bad", 3, op="insert") | both | {"index": int(is_move)}
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), change(10, "x", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK {condition}")
        for _ in range(2):
            with pytest.raises(Rejected):
                it.handle(batch(database, *made, change(20, "y", 2, offset=6)))
        it.handle(batch(database, change(20, "y", 2), offset=6))
        assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "x", 10, 20), (2, "y", 20, None)]
        clickhouse.query(f"ALTER TABLE {database}.t DROP CONSTRAINT c")
        it.handle(letter(database, *made, offset=5))
    assert versions(clickhouse, database) == [
        *((1, "a", 10, 20), (1, "b", 20, None), (2, "x", 10, 20), (2, "y", 20, None)),
        (3, "bad", 20, None),
    ]


def test_rows_of_one_change_are_set_aside_together_in_any_piece(
    clickhouse: ClickHouseServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece ends before 1,000 changes if the rows are large, so it may end between them."""
    monkeypatch.setattr(row_states, "_READ_AT_ONCE", 2)
    made = [{**one, "offset": 5} for one in (change(20, "b"), change(20, "c"), change(20, "bad", 3))]
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), change(10, "x", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'bad'")
        before = change(15, "y", 2, offset=4)
        with pytest.raises(Rejected):
            it.handle(batch(database, before, *made))
        it.handle(batch(database, before))
    assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "x", 10, 15), (2, "y", 15, None)]


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_version_that_the_server_has_accepted_and_refuses_now_stays(
    clickhouse: ClickHouseServer, database: str, is_whole: bool
) -> None:
    """Someone adds a constraint before the batch comes again. `is_whole`: its ends had been written."""
    end = "" if is_whole else " AND (__END_AT IS NULL OR name != 'a')"
    made = [{**one, "offset": 5} for one in (change(20, "b"), change(20, "bad", 3))]
    given = batch(database, *made, change(20, "y", 2, offset=6))
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a"), change(10, "x", 2)))
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK 1{end}")
        with nullcontext() if is_whole else pytest.raises(Unfit, match="it refuses the end"):
            it.handle(given)
        clickhouse.query(f"ALTER TABLE {database}.t DROP CONSTRAINT c")
        clickhouse.query(f"ALTER TABLE {database}.t ADD CONSTRAINT c CHECK name != 'bad'")
        it.handle(given)
    assert versions(clickhouse, database) == [
        *((1, "a", 10, 20), (1, "b", 20, None), (2, "x", 10, 20), (2, "y", 20, None)),
        (3, "bad", 20, None),
    ]


def test_a_row_that_stays_under_its_old_key_gets_no_version(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """With `deletes: ignore`, its change is an update of the key alone."""
    half = {"moves_key": True, "source_time_ms": 20_000, "offset": 5}
    stays = {"op": "update", "before": {"id": 1}, "after": {"id": 1}, "lacks": frozenset({"name"}), **half}
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        it.handle(
            batch(database, stays, {"op": "insert", "after": {"id": 2, "name": "a"}, "index": 1, **half})
        )
    assert versions(clickhouse, database) == [(1, "a", 10, None), (2, "a", 20, None)]


def test_of_changes_at_one_position_the_last_counts(clickhouse: ClickHouseServer, database: str) -> None:
    """A transform may make several of one."""
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        for _ in range(2):
            made = [{"source_time_ms": 20_000, "after": {"id": id_}} for id_ in (2, 1)]
            made.insert(1, change(20, "b"))
            it.handle(batch(database, *({**one, "offset": 1} for one in made)))
    assert versions(clickhouse, database) == [(1, "a", 10, 20), (1, None, 20, None), (2, None, 20, None)]


def test_a_row_that_a_transform_deletes_and_inserts_again_stays(
    clickhouse: ClickHouseServer, database: str
) -> None:
    gone, made = change(20, "a", op="delete", after=None), change(20, "b")
    changes = [{**one, "offset": 2} for one in (change(10, "z", 2), gone, made)]
    with handler(clickhouse, mode="history") as it:
        for _ in range(2):
            it.handle(batch(database, *changes))
        assert versions(clickhouse, database) == [(1, "b", 20, None), (2, "z", 10, None)]
        changes = [{**one, "offset": 3} for one in (change(30, "c"), gone, made)]
        changes += [{**one, "offset": 4} for one in (change(40, "c"), gone)]
        for _ in range(2):
            it.handle(batch(database, *changes))
    assert versions(clickhouse, database) == [(1, "b", 20, 30), (1, "b", 30, 40), (2, "z", 10, None)]


def test_rows_are_read_in_pieces(clickhouse: ClickHouseServer, database: str) -> None:
    texts = [f"{number:03}" * 1000 for number in range(40)]
    with handler(clickhouse, mode="history", max_bytes="20KiB") as it:
        for second in (1, 2):
            ours = [change(10 * second, text, id_) for id_, text in enumerate(texts)]
            it.handle(batch(database, *ours, *ours, offset=100 * second))
    found = versions(clickhouse, database)
    assert [each[2:] for each in found if each[0] == 7] == [(10, 10), (10, 20), (20, 20), (20, None)]
    assert len(found) == 160


def test_a_table_without_the_columns_of_a_history_waits(clickhouse: ClickHouseServer, database: str) -> None:
    with handler(clickhouse, mode="history") as it:
        it.handle(batch(database, change(10, "a")))
        engine = "ReplacingMergeTree(_version, _deleted) ORDER BY id"
        clickhouse.query(f"CREATE TABLE {database}.bare AS {database}.t ENGINE = {engine}")
        clickhouse.query(f"DROP TABLE {database}.t")
        clickhouse.query(f"RENAME TABLE {database}.bare TO {database}.t")
        with pytest.raises(Unfit, match="is ordered by id: a history needs _opened as well"):
            it.handle(batch(database, change(20, "b"), offset=1))
        clickhouse.query(f"ALTER TABLE {database}.t DROP COLUMN __END_AT")
        with pytest.raises(Unfit, match=r"needs a column __END_AT Nullable\(.*\) for a history, it has none"):
            it.handle(batch(database, change(20, "b"), offset=1))
