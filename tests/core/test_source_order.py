"""DDL of another topic takes its place among the rows, whatever order the partitions are fetched in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from handlers import Change
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.fetching.source_order import SourceOrder
from worker.formats.interface import LogPosition, Record, Route, Skip, UndecodableRecord
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignment, Assignments


@dataclass
class Logged:
    """A record that knows its place in the log."""

    at: int
    place: int | None = None
    ddl: bool = False
    stream: str = "server-1"
    ms: int = 0
    body: bytes | None = b"{}"

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return 1, self.ms

    def __len__(self) -> int:
        return 100


class Format:
    """The part of a format that the order asks for."""

    name = "logged"

    def __init__(self) -> None:
        self.learned: list[Record] = []

    def route(self, value: bytes) -> Route:
        raise AssertionError("not asked here")

    def explain(self, record: Record) -> Route | Skip:
        if record.value() == b"?":
            raise UndecodableRecord("no record")
        if record.value() is None:
            return Skip("tombstone")
        return Skip("heartbeat" if record.value() == b"heartbeat" else "transaction")

    def decode(self, record: Record, into: list[Change]) -> None:
        raise AssertionError("not asked here")

    def source_time_ms(self, record: Record) -> int | None:
        return None

    def log_position(self, record: Any) -> LogPosition | None:
        if record.place is None and not record.ms:
            return None
        return LogPosition(record.stream, () if record.place is None else (record.place,), record.ddl)

    def learn(self, record: Record) -> None:
        self.learned.append(record)


@dataclass
class Bench:
    """Partitions of which the first has the DDL, a clock, and what came out."""

    partitions: int = 2
    max_bytes: int = 1 << 20
    now: float = 100.0
    highs: dict[Assignment, int] = field(default_factory=dict)
    out: list[tuple[Assignment, Logged]] = field(default_factory=list)
    format: Format = field(default_factory=Format)

    def __post_init__(self) -> None:
        start = Start(0, (), "initial", "for the test")
        self.inputs = [
            Assignment(TopicPartition("ddl" if n == 0 else f"rows-{n}", 0), 1, start, self.format)
            for n in range(self.partitions)
        ]
        self.order = SourceOrder(
            lambda topic: topic == "ddl",
            high=self.highs.get,
            pauses=Pauses(Mock(), Assignments()),
            are_held=lambda: False,
            is_damaged=lambda _: False,
            max_bytes=self.max_bytes,
            clock=lambda: self.now,
            grace=0.1,
        )
        self.order.assigned(self.inputs)

    def add(self, number: int, *records: Logged) -> None:
        self.take(self.order.add(self.inputs[number], list(records)))  # type: ignore[arg-type]  # the part that is read

    def end(self, number: int, offset: int) -> bool:
        self.highs[self.inputs[number]] = offset
        return self.order.ended(self.inputs[number], offset)

    def due(self) -> list[int | None]:
        before = len(self.out)
        self.take(self.order.due())
        return [record.place for _, record in self.out[before:]]

    def take(self, runs: Any) -> None:
        self.out += [(assignment, record) for assignment, records in runs for record in records]


def test_a_row_waits_until_the_ddl_topic_has_told_what_comes_before_it() -> None:
    bench = Bench()
    bench.add(1, Logged(0, 10), Logged(1, 30))
    assert bench.due() == []
    bench.add(0, Logged(0, 20, ddl=True))
    assert bench.due() == [10, 20]
    bench.add(0, Logged(1, 40, ddl=True))
    assert bench.due() == [30]


def test_ddl_waits_for_the_rows_that_precede_it() -> None:
    bench = Bench(partitions=3)
    bench.add(0, Logged(0, 20, ddl=True))
    bench.add(1, Logged(0, 25))
    assert bench.due() == []
    bench.add(2, Logged(0, 15), Logged(1, 21))
    assert bench.due() == [15, 20]


def test_a_partition_at_its_end_holds_nobody_up_after_the_grace() -> None:
    bench = Bench()
    bench.end(0, 0)
    bench.add(1, Logged(0, 10))
    assert bench.due() == []
    bench.now += 0.11
    assert bench.due() == [10]


@pytest.mark.parametrize(
    ("late", "told"),
    [
        (Logged(0, 20, ddl=True, ms=6), [["rows-1[0]"]]),
        (Logged(0, 20, ddl=True, ms=8), []),  # it was sent after the row: the tool repeats it
        (Logged(0, 40, ddl=True, ms=6), []),
        (Logged(0, 20, ddl=True, ms=6, stream="server-2"), []),
    ],
)
def test_a_statement_that_comes_after_rows_behind_it_is_told(late: Logged, told: list[list[str]]) -> None:
    """Kafka may show what one broker has long before what another has."""
    bench = Bench()
    bench.end(0, 0)
    bench.add(1, Logged(0, 30, ms=7))
    bench.now += 0.11
    assert bench.due() == [30]
    with capture_logs() as logs:
        bench.add(0, late)
    assert [line["after"] for line in logs if line["event"] == "statement_late"] == told


def test_an_end_that_has_moved_is_no_end() -> None:
    bench = Bench()
    bench.end(0, 0)
    bench.add(1, Logged(0, 10))
    bench.now += 1
    bench.highs[bench.inputs[0]] = 1  # a DDL record is under way
    assert bench.due() == []
    bench.add(0, Logged(0, 5, ddl=True))
    bench.end(0, 1)
    assert bench.due() == [5, 10]


def test_ddl_goes_before_rows_of_its_own_place() -> None:
    """All of a snapshot has one place: the tables are made before their rows come."""
    bench = Bench()
    bench.add(1, Logged(0, 7), Logged(1, 7))
    bench.add(0, Logged(0, 7, ddl=True), Logged(1, 7, ddl=True))
    assert bench.due() == [7, 7]
    assert all(record.ddl for _, record in bench.out)
    bench.end(0, 2)
    bench.now += 1
    assert bench.due() == [7, 7]


def test_records_without_a_place_go_with_the_one_before_them() -> None:
    bench = Bench()
    tombstone = Logged(1)
    bench.add(1, Logged(0, 10), tombstone, Logged(2, 30))
    bench.add(0, Logged(0, 20, ddl=True))
    bench.due()
    assert [record for assignment, record in bench.out if assignment is bench.inputs[1]][1:] == [tombstone]


@pytest.mark.parametrize("body", [b"{}", b"heartbeat"])
def test_a_topic_of_transaction_marks_or_heartbeats_holds_nobody_up(body: bytes) -> None:
    """They have no place, and if they are frequent it is never read to its end."""
    bench = Bench(partitions=3)
    bench.end(0, 0)
    for n in range(4):
        bench.add(2, Logged(2 * n, body=body), Logged(2 * n + 1, body=body))
        bench.add(1, Logged(n, 10 + n))
        bench.now += 0.06
        bench.due()
    rows = [record.place for assignment, record in bench.out if assignment is bench.inputs[1]]
    marks = [record.at for assignment, record in bench.out if assignment is bench.inputs[2]]
    assert (rows, marks) == ([10, 11, 12], list(range(8)))


def test_a_transaction_mark_stays_behind_what_is_held() -> None:
    bench = Bench()
    bench.add(1, Logged(0), Logged(1, body=b"?"), Logged(2))
    assert [record.at for _, record in bench.out] == [0]
    bench.end(0, 0)
    bench.now += 1
    bench.due()
    assert [record.at for _, record in bench.out] == [0, 1, 2]


@pytest.mark.parametrize("first", [None, b"?"])
def test_a_partition_that_may_have_rows_is_waited_for(first: bytes | None) -> None:
    """It begins with a tombstone, or with a record that cannot be read."""
    bench = Bench(partitions=3)
    bench.add(0, Logged(0, 20, ddl=True))
    bench.add(1, Logged(0, 30))
    bench.add(2, Logged(0, body=first))
    assert bench.due() == [None]
    bench.add(2, Logged(1, 10), Logged(2, 40))
    assert bench.due() == [10, 20]


def test_a_partition_is_waited_for_from_its_first_place_on() -> None:
    bench = Bench(partitions=3)
    bench.add(0, Logged(0, 20, ddl=True))
    bench.add(2, Logged(0), Logged(1, 10))
    bench.add(1, Logged(0, 30))
    assert bench.due() == [10]
    bench.add(2, Logged(2), Logged(3, 25))
    assert bench.due() == [None, 20]


def test_rows_may_follow_a_first_transaction_mark_at_once() -> None:
    """A transform wrote both to one topic, and a poll ended between them."""
    bench = Bench(partitions=3)
    bench.add(2, Logged(0))
    bench.add(0, Logged(0, 20, ddl=True))
    bench.add(1, Logged(0, 40))
    assert bench.due() == []
    bench.add(2, Logged(1, 10), Logged(2, 30))
    assert bench.due() == [10, 20]


def test_without_places_the_timestamps_decide() -> None:
    bench = Bench()
    bench.add(1, Logged(0, ms=1_000), Logged(1, ms=3_000))
    bench.add(0, Logged(0, ms=2_000, ddl=True))
    bench.due()
    assert [record.ms for _, record in bench.out] == [1_000, 2_000]


def test_other_sources_do_not_wait_for_each_other() -> None:
    bench = Bench(partitions=3)
    bench.add(1, Logged(0, 10, stream="server-2"))
    bench.add(2, Logged(0, 10_000, stream="server-1"))
    bench.add(0, Logged(0, 5, ddl=True, stream="server-1"))
    assert sorted(place or 0 for place in bench.due()) == [5, 10]


def test_a_partition_of_several_sources_is_told_once() -> None:
    """Their places do not compare, so DDL may go before rows that precede it."""
    bench = Bench()
    with capture_logs() as logs:
        bench.add(1, Logged(0, 10), Logged(1, 11), Logged(2, ms=5))
        assert not logs
        bench.add(1, Logged(3, 7, stream="server-2"), Logged(4, 12), Logged(5, 8, stream="server-2"))
    [line] = logs
    assert (line["event"], line["log_level"]) == ("source_order_of_several_sources", "error")
    assert (line["partition"], line["sources"]) == ("rows-1[0]", ["server-1", "server-2"])


def test_formats_without_ddl_topics_pass_at_once() -> None:
    bench = Bench()
    plain = Assignment(TopicPartition("plain", 0), 1, Start(0, (), "initial", "for the test"), object())  # type: ignore[arg-type]  # a format without places
    bench.order.assigned([plain])
    assert bench.order.add(plain, ["any"]) == [(plain, ["any"])]  # type: ignore[list-item]  # never looked at
    assert bench.order.ended(plain, 5)


def test_ddl_is_learned_before_anything_later_goes_on() -> None:
    bench = Bench()
    ddl = Logged(0, 20, ddl=True)
    bench.add(0, ddl)
    assert bench.format.learned == [ddl]


def test_an_end_behind_held_records_is_not_reached_yet() -> None:
    """Else the checkpoint would pass over records that nobody has handled."""
    bench = Bench()
    bench.add(1, Logged(0, 10))
    assert not bench.end(1, 1)
    assert bench.order.ends() == []
    bench.end(0, 0)
    bench.now += 1
    assert bench.due() == [10]
    assert bench.order.ends() == [(bench.inputs[0], 0), (bench.inputs[1], 1)]


def test_an_end_told_before_later_records_is_none() -> None:
    bench = Bench()
    bench.add(0, Logged(0, 20, ddl=True), Logged(1, 50, ddl=True))
    bench.end(0, 1)  # polled together with the records behind it
    bench.add(1, Logged(0, 30), Logged(1, 60))
    bench.now += 1
    assert bench.due() == [20, 30, 50]


def test_what_left_is_forgotten_and_holds_nobody_up() -> None:
    bench = Bench()
    bench.add(1, Logged(0, 10))
    bench.order.revoked([bench.inputs[0]])
    assert bench.due() == [10]
    bench.add(1, Logged(1, 11))
    bench.order.revoked([bench.inputs[1]])
    assert not bench.order
    assert bench.due() == []


def test_a_partition_that_is_ahead_is_to_pause() -> None:
    bench = Bench(max_bytes=40_000)
    bench.add(1, *(Logged(n, 10 + n) for n in range(20)))
    assert bench.order.ahead() == [bench.inputs[1]]
    bench.add(0, Logged(0, 1_000, ddl=True))
    bench.due()
    assert bench.order.ahead() == []


def test_more_than_may_be_held_goes_on_although_nothing_came_along() -> None:
    bench = Bench(max_bytes=4_000)
    bench.add(1, *(Logged(n, 10 + n) for n in range(20)))
    assert len(bench.due()) == 20


def test_a_partition_that_is_paused_itself_is_waited_for_whatever_is_held() -> None:
    """As by max_ahead: it tells nothing because nobody reads it."""
    bench = Bench(max_bytes=4_000)
    bench.add(1, *(Logged(n, 10 + n) for n in range(20)))
    assert bench.order.due(patient=True) == []
    assert bench.order.ahead() == [bench.inputs[1]], "no more is held"
    bench.add(0, Logged(0, 15, ddl=True), Logged(1, 100, ddl=True))
    bench.take(bench.order.due(patient=True))
    places = [record.place for _, record in bench.out]
    assert places.index(15) < places.index(16)


def test_all_of_one_partition_can_be_let_go() -> None:
    bench = Bench()
    bench.add(1, Logged(0, 10), Logged(1, 20))
    bench.take(bench.order.flush(bench.inputs[1], again=False))
    assert [record.place for _, record in bench.out] == [10, 20]
    assert not bench.order


@settings(max_examples=200, deadline=None)
@given(
    partitions=st.integers(2, 4),
    log=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40),
    seed=st.integers(0, 1 << 30),
)
def test_however_it_is_fetched_every_barrier_keeps_its_place(
    partitions: int, log: list[tuple[int, bool]], seed: int
) -> None:
    bench = Bench(partitions=partitions)
    queues: list[list[Logged]] = [[] for _ in range(partitions)]
    for place, (number, barrier) in enumerate(log):
        chosen = 0 if barrier and number % 2 else number % partitions
        queue = queues[chosen]
        queue.append(Logged(len(queue), place + 1, ddl=barrier or chosen == 0))
    for number, queue in enumerate(queues):
        bench.highs[bench.inputs[number]] = len(queue)
    fetched = [0] * partitions
    chance = random.Random(seed)
    while any(fetched[n] < len(queues[n]) for n in range(partitions)) or bench.order:
        number = chance.randrange(partitions)
        rest = queues[number][fetched[number] :][: chance.randrange(1, 5)]
        if rest:
            bench.add(number, *rest)
            fetched[number] += len(rest)
        if fetched[number] == len(queues[number]):
            bench.end(number, fetched[number])
        bench.now += chance.choice([0.0, 0.2])
        bench.due()
    places = [record.place or 0 for _, record in bench.out]
    assert sorted(places) == list(range(1, len(log) + 1))
    for index, (_, record) in enumerate(bench.out):
        if record.ddl:
            assert all(place < (record.place or 0) for place in places[:index])
            assert all(place > (record.place or 0) for place in places[index + 1 :])
    for number in range(partitions):
        own = [record.at for assignment, record in bench.out if assignment is bench.inputs[number]]
        assert own == sorted(own)


def test_a_partition_whose_offsets_begin_anew_is_known_to_be_read_to_its_end() -> None:
    bench = Bench()
    bench.add(0, Logged(at=50, place=1, ddl=True))
    bench.take(bench.order.flush(bench.inputs[0], again=False))  # its topic was made anew
    assert bench.end(0, 3)
    bench.add(1, Logged(at=0, place=5))
    bench.now += 1
    assert bench.due() == [5]
