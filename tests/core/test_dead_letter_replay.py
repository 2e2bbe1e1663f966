"""Replaying dead letters: what each becomes, in which order, and that a target with marks has it once."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from building import configuration
from canal_packets import packet, row, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers import Batch, Change, Handler, HandlerContext, PartialFailure, StopWorker
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.configuration import Configuration
from worker.dead_letters.topic import DeadLetter, with_offset
from worker.formats.canal.format import Canal
from worker.formats.interface import Apart
from worker.running.dead_letter_replay import (
    Reader,
    Replay,
    ReplayFault,
    by_failure,
    in_order,
    replayed_topic,
)

CALLS: list[tuple[str, list[tuple[str, int, int]]]] = []
"""(handler's name, (topic, offset, id) of its changes) of each call of a Noting handler."""
REPLAYS: list[tuple[str, int, int] | None] = []
"""What the batches of these calls say of it."""
FAILING: dict[str, BaseException] = {}
"""What the handler of this name raises."""


class Noting(Handler):
    def __init__(self, name_: str) -> None:
        self.name = name_

    def handle(self, batch: Batch) -> None:
        ids = [(c.topic, c.offset, int((c.after or c.before or {"id": -1})["id"])) for c in batch.changes]
        if self.name in FAILING:
            raise FAILING[self.name]
        CALLS.append((self.name, ids))
        REPLAYS.append(batch.replay_of)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    REPLAYS.clear()
    FAILING.clear()


def noting(*names: str) -> Configuration:
    """Tables of shop with these handlers."""
    entries = [{"type": f"{__name__}:Noting", "name": name, "name_": name} for name in names]
    return configuration({"match": "shop.*", "handlers": entries})


def canal(table: str, *ids: int, **fields: Any) -> bytes:
    message = {
        "database": "shop",
        "table": table,
        "type": "INSERT",
        "isDdl": False,
        "es": 1,
        "data": [{"id": str(each), "name": f"row {each}"} for each in ids],
        "mysqlType": {"id": "bigint", "name": "varchar(60)"},
        "pkNames": ["id"],
    }
    return json.dumps(message | fields).encode()


def letter(offset: int, value: bytes | None = None, **fields: Any) -> DeadLetter:
    given: dict[str, Any] = {
        "place": TopicPartition("cdc.dead", 0),
        "topic": "cdc.shop",
        "partition": 3,
        "source_offset": 1000 + offset,
        "index": 0,
        "table": "shop.orders",
        "handler": None,
        "error": "E",
        "attempts": 1,
        "time": f"2026-11-21T10:00:{offset:02d}.000Z",
        "worker": "w",
        "key": None,
        "value": canal("orders", offset) if value is None else value,
        "headers": (),
        "timestamp": (1, 0),
    }
    return DeadLetter(offset=offset, **(given | fields))


def replayed(replay: Replay, reader: Reader, *letters: DeadLetter) -> list[str]:
    """`done`, or what was wrong, for each."""
    results = []
    for each in letters:
        try:
            replay.apply(reader.plan(each))
        except ReplayFault as fault:
            results.append(str(fault))
        else:
            results.append("done")
    return results


def test_a_letter_goes_to_its_handler_alone_and_one_without_a_handler_to_all() -> None:
    config = noting("a", "b")
    replay, reader = Replay(config), Reader(config)
    assert replayed(replay, reader, letter(1, handler="b"), letter(2)) == ["done", "done"]
    assert CALLS == [
        ("b", [("cdc.dead@1", 1, 1)]),
        ("a", [("cdc.dead@2", 2, 2)]),
        ("b", [("cdc.dead@2", 2, 2)]),
    ]


def test_a_replayed_batch_says_where_its_record_stood() -> None:
    config = noting("a")
    assert replayed(Replay(config), Reader(config), letter(1), letter(2, partition=None)) == ["done", "done"]
    assert REPLAYS == [("cdc.shop", 3, 1001), None]


def test_of_a_record_of_several_rows_only_the_letters_own_row_is_applied() -> None:
    config = noting("a")
    value = canal("orders", 7, 8, 9)
    assert replayed(Replay(config), Reader(config), letter(1, value, index=1), letter(2, value, index=None))
    assert [[row for _, _, row in rows] for _, rows in CALLS] == [[8], [7, 8, 9]]


@pytest.mark.parametrize(("index", "ids"), [(0, [7]), (1, [-8, 8]), (2, [-8, 8]), (3, [9])])
def test_of_a_row_that_moves_both_halves_are_applied_whichever_the_letter_names(
    index: int, ids: list[int]
) -> None:
    config = noting("a")
    old = [{"name": "x"}, {"id": "-8"}, {"name": "y"}]
    value = canal("orders", 7, 8, 9, type="UPDATE", old=old)
    assert replayed(Replay(config), Reader(config), letter(1, value, index=index)) == ["done"]
    assert [("a", [("cdc.dead@1", 1, each) for each in ids])] == CALLS


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"value": b"no JSON"}, "undecodable record: "),
        ({"value": canal("orders", 1, database="other")}, "no rule of tables: matches other.orders"),
        ({"handler": "gone"}, "shop.orders has no handler gone now; it has a"),
        ({"index": 4}, "its record has no row 4"),
        ({"topic": None}, "its headers do not name its source topic"),
    ],
)
def test_what_cannot_be_replayed_says_why(fields: dict[str, Any], reason: str) -> None:
    config = noting("a")
    [told] = replayed(Replay(config), Reader(config), letter(1, **fields))
    assert told.startswith(reason)
    assert CALLS == []


def test_a_record_without_a_change_is_nothing_to_do() -> None:
    config = noting("a")
    end = canal("", database="", type="TRANSACTIONEND", data=None)
    plan = Reader(config).plan(letter(1, end, table="__undecodable__", index=None))
    assert plan.skipped == "transaction"
    Replay(config).apply(plan)
    assert CALLS == []


@pytest.mark.parametrize("index", [None, 0])
def test_a_statement_that_is_of_no_table_is_nothing_to_do(index: int | None) -> None:
    config = noting("a")
    grant = canal(
        "orders", isDdl=True, type="QUERY", sql="GRANT ALL ON *.* TO a IDENTIFIED BY 'x'", data=None
    )
    plan = Reader(config).plan(letter(1, grant, index=index))
    assert plan.skipped == "it contains no change"
    Replay(config).apply(plan)
    assert CALLS == []


def test_nothing_overtakes_a_letter_of_its_row_that_failed_and_other_rows_go_on() -> None:
    config = noting("a")
    replay, reader = Replay(config), Reader(config)
    FAILING["a"] = ValueError("not now")
    assert replayed(replay, reader, letter(1)) == ["handler a: ValueError: not now"]
    FAILING.clear()
    same_row, both = letter(2, canal("orders", 1)), letter(3, canal("orders", 1, 5), index=None)
    held = "not tried: 0:1, which failed, has an earlier change of its row"
    assert replayed(replay, reader, same_row, both, letter(4)) == [held, held, "done"]
    third = "not tried: 0:3, which failed, has an earlier change of its row"
    assert replayed(replay, reader, letter(5)) == [third], "row 5, by way of the letter of both"
    other = letter(6, canal("stock", 1))
    keyless = letter(7, canal("stock", 1, pkNames=None))
    assert replayed(replay, reader, other, keyless) == ["done", "done"]


def test_a_statement_waits_for_every_row_of_its_table() -> None:
    config = noting("a")
    replay, reader = Replay(config), Reader(config)
    FAILING["a"] = ValueError("not now")
    replayed(replay, reader, letter(1))
    FAILING.clear()
    ddl = canal("orders", isDdl=True, type="ALTER", sql="ALTER TABLE orders ADD x int", data=None)
    [told] = replayed(replay, reader, letter(2, ddl))
    assert told.startswith("not tried: 0:1")


def test_a_partial_failure_of_everything_is_a_success_and_of_less_is_none() -> None:
    config = noting("a")
    FAILING["a"] = PartialFailure(1)
    assert replayed(Replay(config), Reader(config), letter(1)) == ["done"]
    FAILING["a"] = PartialFailure(0, ValueError("why"))
    assert replayed(Replay(config), Reader(config), letter(1)) == ["handler a: ValueError: why"]


def test_a_handler_whose_means_are_gone_ends_the_run() -> None:
    config = noting("a")
    FAILING["a"] = StopWorker("the JVM is gone")
    with pytest.raises(StopWorker):
        Replay(config).apply(Reader(config).plan(letter(1)))


class Losing(Noting):
    """A thread of it finds that its means are gone, after its first letter."""

    def open(self, context: HandlerContext) -> None:
        self.stop_worker = context.stop_worker

    def handle(self, batch: Batch) -> None:
        assert self.stop_worker is not None
        self.stop_worker(StopWorker("the JVM is gone"))


def test_a_handler_whose_thread_cannot_go_on_ends_the_run_before_the_next_letter() -> None:
    entry = {"type": f"{__name__}:Losing", "name_": "a"}
    config = configuration({"match": "*", "handlers": [entry]})
    reader, replay = Reader(config), Replay(config)
    replay.apply(reader.plan(letter(1)))
    with pytest.raises(StopWorker, match="the JVM is gone"):
        replay.apply(reader.plan(letter(2)))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


def into(database: Path) -> Configuration:
    """A target that keeps how far it has applied, and where each insert makes one more row."""
    entry = {"type": "sql", "url": f"sqlite:///{database}", "table": "{table}", "without_key": "append"}
    return configuration({"match": "*", "handlers": [entry]})


@settings(deadline=None, max_examples=30)  # each makes a database
@given(st.lists(st.integers(0, 6), max_size=8))
def test_in_whatever_order_and_however_often_each_letter_is_applied_once(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int]
) -> None:
    database = tmp_path_factory.mktemp("replay") / "target.db"
    config = into(database)
    reader = Reader(config)
    for offset in offsets:  # a run of the command for each
        replay = Replay(config)
        assert replayed(replay, reader, letter(offset, canal("orders", offset, pkNames=None))) == ["done"]
        assert list(replay.close()) == []
    if offsets:
        with sqlite3.connect(database) as connection:
            rows = [row for (row,) in connection.execute("SELECT id FROM orders")]
        assert sorted(rows) == sorted(set(offsets))


def test_letters_of_a_dead_letter_topic_made_anew_are_applied_though_their_offsets_were_there(
    database: Path,
) -> None:
    config = into(database)
    for topic_id, number in (("A", 1), ("A", 1), ("B", 2)):
        replay = Replay(config, topic_id)
        assert replayed(replay, Reader(config), letter(5, canal("orders", number, pkNames=None))) == ["done"]
        assert list(replay.close()) == []
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_handler_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    config = into(tmp_path / "no such folder" / "target.db")
    [told] = replayed(Replay(config), Reader(config), letter(1))
    assert told.startswith("handler sql could not open: ")


def test_letters_of_several_partitions_go_by_their_time_and_within_one_as_they_stand() -> None:
    def at(partition: int, offset: int, second: int | None) -> DeadLetter:
        time = None if second is None else f"2026-11-21T10:00:{second:02d}.000Z"
        return letter(offset, place=TopicPartition("cdc.dead", partition), time=time)

    found = [at(0, 0, 5), at(0, 1, 3), at(0, 2, 9), at(1, 0, 4), at(1, 1, 6), at(2, 0, None)]
    assert [each.name for each in in_order(found)] == ["2:0", "1:0", "0:0", "0:1", "1:1", "0:2"]


def test_letters_of_the_same_failure_are_one_for_all_and_no_others_are() -> None:
    first = letter(1)
    again = letter(4, first.value, source_offset=first.source_offset, attempts=9, error="F")
    others: list[dict[str, Any]] = [
        {"index": 1},
        {"index": None},
        {"handler": "other"},
        {"worker": "v"},
        {"partition": 4},
        {"value": b"of a topic that was made anew"},
        {"timestamp": (1, 1)},
        {"topic": None},
    ]
    others_than = [msgspec.structs.replace(again, offset=10 + n, **each) for n, each in enumerate(others)]
    unknown = [letter(20, topic=None), letter(21, topic=None)]
    found = by_failure([first, *others_than, again, *unknown, first])
    assert [[each.offset for each in alike] for alike in found] == [
        [1, 4],
        *([each.offset] for each in (*others_than, *unknown)),
    ]


def test_the_topic_of_a_replayed_change_fits_where_topics_fit() -> None:
    long = letter(123_456, place=TopicPartition("t" * 249, 0))
    assert len(replayed_topic(long)) == 249
    assert replayed_topic(long).endswith("tt@123456")


@given(st.integers(0, 10), st.lists(st.integers(0, 40)))
def test_what_was_replayed_is_kept_as_a_position_and_ranges_ahead_of_it(
    begin: int, offsets: list[int]
) -> None:
    known = Checkpoint(begin)
    done = set(range(begin))
    for offset in offsets:
        known = with_offset(known, offset)
        done.add(offset)
        assert known.offset == next(n for n in range(100) if n not in done)
        covered = set(range(known.offset)).union(*(range(*each) for each in known.ahead))
        assert covered == done
        edges = [known.offset, *(edge for each in known.ahead for edge in each)]
        assert all(low < high for low, high in itertools.pairwise(edges)), "as a commit wants them"
        assert all(isinstance(each, OffsetRange) for each in known.ahead)


def test_a_letter_of_a_packet_holds_the_part_of_its_table_and_its_row_is_found_in_it() -> None:
    rows_of_a = [row({"id": str(number)}, types={"id": "bigint"}) for number in (5, 6)]
    value = packet(rows("b", row({"id": "4"}, types={"id": "bigint"})), rows("a", *rows_of_a))
    whole = Canal().explain(letter(1, value).original())
    assert isinstance(whole, Apart)
    of_a = whole.parts[1][1]
    found: list[Change] = []
    Canal().decode(letter(1, of_a).original(), found)
    plan = Reader(noting("h")).plan(letter(1, of_a, index=found[1].index, table="shop.a"))
    assert (plan.table, [change.after for change in plan.changes]) == ("shop.a", [{"id": 6}])
    with pytest.raises(ReplayFault, match=r"several tables \(shop\.b, shop\.a\)"):
        Reader(noting("h")).plan(letter(1, value))
