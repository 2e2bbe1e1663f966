"""A topic that was made anew begins anew in the target; what marks pass over is counted and told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa
import structlog
from sql_lab import SqlLab, orders

from handlers import Batch
from handlers.progress import FormerTopic
from handlers.rows import shard_of

TYPES = {"id": "int", "n": "int"}


def batch(*ids: int, topic_id: str | None, offset: int = 0, **fields: Any) -> Batch:
    rows = [{"id": number, "n": 0} for number in ids]
    return orders(*rows, key=None, types=TYPES, offset=offset, topic_id=topic_id, **fields)


def numbers(sql: SqlLab) -> list[int]:
    return sorted(one["id"] for one in sql.rows())


def ids(sql: SqlLab) -> list[tuple[Any, ...]]:
    """(shard, offset, id, former ids) of each mark."""
    columns = "shard, kafka_offset, topic_id, former_topic_ids"
    return sorted(tuple(row) for row in sql.run(f"SELECT {columns} FROM binlane_marks WHERE topic <> ''"))


class Meter(Counter[str]):
    """What a handler counts, by metric and handler."""

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        self[f"{metric} {labels['handler']}"] += int(amount)

    def observe(self, metric: str, value: float, **labels: str) -> None:
        raise AssertionError(metric)


def test_a_topic_made_anew_is_applied_from_its_beginning(sql: SqlLab) -> None:
    with sql.handler() as handler, structlog.testing.capture_logs() as logs:
        handler.handle(batch(*range(10), topic_id="A"))
        handler.handle(batch(10, 11, topic_id="B"))
        handler.handle(batch(10, 11, topic_id="B"))
        handler.handle(batch(12, topic_id="B", offset=2))
    assert numbers(sql) == list(range(13))
    assert ids(sql) == [(-1, 2, "B", "A")]
    [told] = [line for line in logs if line["event"] == "topic_made_anew"]
    assert (told["topic"], told["former_id"], told["topic_id"]) == ("test", "A", "B")


def test_a_worker_that_still_holds_the_former_topic_does_not_set_the_marks_back(sql: SqlLab) -> None:
    with sql.handler() as frozen, sql.handler() as other:
        frozen.handle(batch(1, topic_id="A"))
        other.handle(batch(2, topic_id="B"))
        with pytest.raises(FormerTopic, match=r"former topic test \(id A\).*replaced it \(id B\)"):
            frozen.handle(batch(3, topic_id="A", offset=7))
        other.handle(batch(2, topic_id="B"))
    assert numbers(sql) == [1, 2]
    assert ids(sql) == [(-1, 0, "B", "A")]


def test_another_partition_goes_on_with_the_former_topic_until_the_new_one_comes_to_it(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(batch(0, topic_id="A"))
        handler.handle(batch(1, topic_id="B"))
        handler.handle(batch(2, topic_id="A", partition=1))
        handler.handle(batch(3, topic_id="B", partition=1))
        with pytest.raises(FormerTopic):
            handler.handle(batch(4, topic_id="A", partition=1, offset=5))
    assert numbers(sql) == [0, 1, 2, 3]


def test_a_partition_or_shard_that_begins_with_the_new_topic_refuses_what_a_frozen_worker_has(
    sql: SqlLab,
) -> None:
    with sql.handler() as frozen:
        frozen.handle(batch(1, topic_id="A"))
        with sql.handler() as other:
            other.handle(batch(2, topic_id="B", partition=1))
            other.handle(batch(3, topic_id="B", partition=2, shard=7))
            for place in ({"partition": 1}, {"partition": 2, "shard": 7}, {"partition": 2}):
                with pytest.raises(FormerTopic):
                    frozen.handle(batch(4, topic_id="A", offset=500, **place))
            other.handle(batch(5, topic_id="B", partition=1, offset=1))
    assert numbers(sql) == [1, 2, 3, 5]


def test_a_batch_whose_topic_nobody_could_tell_leaves_the_live_topic_the_current_one(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(batch(1, topic_id="A", offset=1000, shard=1))
        handler.handle(batch(2, topic_id="B", offset=3, shard=2))
        handler.handle(batch(3, 4, topic_id=None, offset=4))  # what A had reached is not of these
        handler.handle(batch(5, topic_id="B", offset=6))
        handler.handle(batch(6, topic_id="B", offset=7, shard=2))
    assert numbers(sql) == [1, 2, 3, 4, 5, 6]


def test_a_topic_that_is_live_again_after_a_fail_over_and_back_is_applied_where_the_handler_is_told_so(
    sql: SqlLab,
) -> None:
    with sql.handler() as handler:
        handler.handle(batch(1, topic_id="A", offset=5))
        handler.handle(batch(2, topic_id="B"))
        with pytest.raises(FormerTopic, match=r'topic_again: {"A": \["B"\]}'):
            handler.handle(batch(3, topic_id="A", offset=6))
    with sql.handler(topic_again={"A": ["B"]}) as handler:
        handler.handle(batch(3, topic_id="A", offset=6))
        handler.handle(batch(3, topic_id="A", offset=6))
        with pytest.raises(FormerTopic):
            handler.handle(batch(4, topic_id="B", offset=1))
    with sql.handler() as handler:
        handler.handle(batch(5, topic_id="A", offset=7))
    assert numbers(sql) == [1, 2, 3, 5]
    assert ids(sql) == [(-1, 7, "A", "B")]


def test_a_mark_without_an_id_takes_that_of_the_first_batch_that_moves_it(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(batch(0, 1, topic_id=None))
        handler.handle(batch(0, 1, topic_id="A"))
        assert ids(sql) == [(-1, 1, None, None)]
        handler.handle(batch(1, 2, topic_id="A", offset=1))
        assert ids(sql) == [(-1, 2, "A", None)]
        handler.handle(batch(0, 1, 2, topic_id=None))
        handler.handle(batch(9, topic_id="B"))
    assert numbers(sql) == [0, 1, 2, 9]


def test_of_the_former_ids_the_last_eight_are_kept(sql: SqlLab) -> None:
    with sql.handler() as handler:
        for number in range(12):
            handler.handle(batch(number, topic_id=f"T{number}"))
    assert ids(sql) == [(-1, 0, "T11", "T3 T4 T5 T6 T7 T8 T9 T10")]


def test_shards_begin_anew_each_for_itself_and_the_whole_table_with_all_of_them(sql: SqlLab) -> None:
    one, two = {"id": 1, "n": 0}, {"id": 2, "n": 0}

    def of(row: dict[str, int], topic_id: str, *, n: int, offset: int) -> Batch:
        made = orders({**row, "n": n}, types=TYPES, topic_id=topic_id, offset=offset)
        shard = shard_of(made.changes[0])
        return orders({**row, "n": n}, types=TYPES, topic_id=topic_id, offset=offset, shard=shard)

    def whole(topic_id: str, offset: int) -> Batch:
        return orders(
            {"op": "truncate", "sql": "TRUNCATE orders"}, types=TYPES, topic_id=topic_id, offset=offset
        )

    assert of(one, "A", n=0, offset=0).shard != of(two, "A", n=0, offset=0).shard
    with sql.handler() as handler:
        handler.handle(orders(one, two, types=TYPES, topic_id="A", offset=50))
        handler.handle(of(one, "A", n=1, offset=60))
        handler.handle(of(two, "A", n=1, offset=61))
        handler.handle(of(one, "B", n=2, offset=0))
        assert sql.rows() == [{"id": 1, "n": 2}, {"id": 2, "n": 1}]
        with pytest.raises(FormerTopic):
            handler.handle(of(one, "A", n=3, offset=62))
        with pytest.raises(FormerTopic):
            handler.handle(whole("A", 63))
        # The other shard has not seen the new topic: what is left of the former one comes before it.
        handler.handle(of(two, "A", n=4, offset=62))
        handler.handle(whole("B", 1))
        assert [row[:3] for row in ids(sql)] == [(-1, 1, "B")]
        handler.handle(of(two, "B", n=5, offset=2))
        with pytest.raises(FormerTopic):
            handler.handle(of(two, "A", n=6, offset=70))
    assert sql.rows() == [{"id": 2, "n": 5}]


def test_marks_of_an_earlier_release_are_kept_and_get_the_ids_beside_them(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(batch(0, 1, topic_id=None))
    for column in ("topic_id", "former_topic_ids", "ddl_step", "owner"):
        sql.run(f"ALTER TABLE binlane_marks DROP COLUMN {column}")
    with sql.handler() as first, sql.handler() as second:
        first.handle(batch(1, 2, topic_id="A", offset=1))
        second.handle(batch(3, topic_id="B"))
    assert numbers(sql) == [0, 1, 2, 3]
    assert ids(sql) == [(-1, 0, "B", "A")]
    with sql.engine.connect() as connection:
        assert len(sa.inspect(connection).get_columns("binlane_marks")) == 13


def test_what_the_marks_pass_over_is_counted_and_told_once_for_each_tenfold(sql: SqlLab) -> None:
    meter = Meter()
    with sql.handler(metrics=meter) as handler, structlog.testing.capture_logs() as logs:
        handler.handle(batch(*range(5), topic_id="A"))
        assert meter.total() == 0
        for _ in range(5):
            handler.handle(batch(3, 4, topic_id="A", offset=3))
    assert meter == {"binlane_handler_passed_over_total SqlHandler": 10}
    told = [line for line in logs if line["event"] == "changes_passed_over"]
    assert [(line["log_level"], line["count"]) for line in told] == [("info", 2), ("warning", 10)]
    assert told[0]["table"] == "shop.orders"
