"""Processors and dead letters, without Kafka: which record is written when, and what a flood is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from building import Scripted, chunk, configuration, delivery, record, seen, unit
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from processing import BAD, Stage
from structlog.testing import capture_logs

from handlers import Batch, Rejected
from offsets.types import Checkpoint
from worker.attempts.steps import MustHalt, MustWait
from worker.configuration import DeadLetterRule
from worker.dead_letters import writing
from worker.dead_letters.writing import WINDOW, DeadLetters, Flood
from worker.formats.interface import Record
from worker.local.broker_settings import free_port
from worker.observing.metrics import Metrics
from worker.units.table_book import TableBook
from worker.units.unit import UnitState


@dataclass
class Letters:
    """In place of the topic: keeps what it is given, or refuses it."""

    refuse: list[BaseException] = field(default_factory=list)
    """Raised one after the other, then no more."""
    sent: list[tuple[int, str, str | None, int | None]] = field(default_factory=list)
    """(offset, table, handler, index)"""
    before: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def send(self, message: Record, **fields: Any) -> str:
        if self.refuse:
            raise self.refuse.pop(0)
        self.sent.append((message.offset(), fields["table"], fields["handler"], fields["index"]))
        self.before.append(fields["before"])
        self.errors.append(fields["error"])
        return "written"


def staged(letters: Letters, **more: Any) -> Stage:
    return Stage(letters=letters, **more)  # type: ignore[arg-type]  # only `send` is used


def rejecting(*bad: tuple[int, int]) -> Scripted:
    def script(batch: Batch) -> None:
        for at, change in enumerate(batch.changes):
            if (change.offset, change.index) in bad:
                raise Rejected("never", at=at)

    return Scripted(script)


def test_the_record_of_a_rejected_row_is_written_once_and_all_others_are_finished() -> None:
    letters = Letters()
    stage, handler = staged(letters), rejecting((3, 0))
    table = unit("orders", handler, on_failure="dead_letter")
    stage.offer((table, range(6)))
    stage.run(table)
    assert letters.sent == [(3, "shop.orders", "h0", 0)]
    assert letters.errors == ["Rejected: never"]
    assert letters.before == [3], "of its batch"
    assert stage.checkpoint() == Checkpoint(6)
    assert table.finished_records == 6


def test_two_failing_rows_of_a_record_make_two_letters_with_their_rows() -> None:
    letters = Letters()
    stage = staged(letters)
    table = unit("orders", rejecting((1, 0), (1, 2)), on_failure="dead_letter")
    records = [record(n, rows=4) for n in range(3)]
    stage.lanes.offer(delivery((table, chunk(stage.partition, records))))
    stage.run(table)
    assert letters.sent == [(1, "shop.orders", "h0", 0), (1, "shop.orders", "h0", 2)]
    assert stage.checkpoint() == Checkpoint(3)


def test_each_handler_that_rejects_a_row_has_a_letter_of_its_own() -> None:
    letters = Letters()
    stage, fine = staged(letters), Scripted()
    table = unit("orders", rejecting((2, 0)), fine, rejecting((2, 0)), on_failure="dead_letter")
    stage.offer((table, range(4)))
    stage.run(table)
    assert sorted(letters.sent) == [(2, "shop.orders", "h0", 0), (2, "shop.orders", "h2", 0)]
    assert seen(fine) == [[0, 1, 2, 3]]
    assert stage.checkpoint() == Checkpoint(4)


def test_a_row_that_is_rejected_in_a_batch_that_was_not_decoded_is_found_by_its_place() -> None:
    letters = Letters()
    stage, fine = staged(letters), Scripted()
    handled: list[tuple[int, int]] = []

    def script(batch: Batch) -> None:
        rows = [(change.offset, change.index) for change in batch.changes]
        if (1, 1) in rows:
            raise Rejected("never", at=rows.index((1, 1)))
        handled.extend(rows)

    table = unit("orders", Scripted(script), fine, on_failure="dead_letter")
    records = [record(n, rows=3) for n in range(3)]
    stage.lanes.offer(delivery((table, chunk(stage.partition, records))))
    stage.run(table)
    assert letters.sent == [(1, "shop.orders", "h0", 1)]
    assert handled == [(n, row) for n in range(3) for row in range(3) if (n, row) != (1, 1)]
    assert len(fine.batches) == 1
    assert stage.checkpoint() == Checkpoint(3)


def test_while_no_letter_can_be_written_nothing_after_is_finished_and_nothing_before_is_done_again() -> None:
    letters = Letters(refuse=[MustWait("the topic is away", 60.0)])
    stage, handler = staged(letters), rejecting((2, 0))
    table, other = unit("orders", handler, on_failure="dead_letter"), unit("other")
    stage.offer((table, range(5)), (other, [5]))
    stage.run(until=lambda: table.state is UnitState.BACKOFF and other.finished_records)
    assert (table.blocked, table.error) == (True, "the topic is away (handler h0)")
    checkpoint = stage.checkpoint()
    assert checkpoint is not None
    assert checkpoint.offset == 2
    assert table.finished_records == 2
    assert seen(handler) == [[0, 1, 2, 3, 4], [0, 1]]


def test_when_letters_can_be_written_again_the_table_goes_on_where_it_was() -> None:
    letters = Letters(refuse=[MustWait("away", 0.01)] * 3)
    stage, handler = staged(letters), rejecting((2, 0))
    table = unit("orders", handler, on_failure="dead_letter")
    stage.offer((table, range(5)))
    stage.run(table)
    assert seen(handler) == [[0, 1, 2, 3, 4], [0, 1], [3, 4]]
    assert letters.sent == [(2, "shop.orders", "h0", 0)]
    assert stage.checkpoint() == Checkpoint(5)
    assert (table.error, table.failed_batches) == (None, 0)


def test_one_letter_too_many_halts_its_table() -> None:
    letters = Letters(refuse=[MustHalt("a flood")])
    stage, handler = staged(letters), rejecting((2, 0))
    table = unit("orders", handler, on_failure="dead_letter")
    stage.offer((table, range(5)))
    with capture_logs() as logs:
        stage.run(table)
    assert (table.state, table.error) == (UnitState.HALTED, "a flood (handler h0)")
    assert stage.checkpoint() == Checkpoint(2)
    assert [log["position"] for log in logs if log["event"] == "table_halted"] == [
        "cdc.shop[0] offset 2 row 0"
    ]


def test_undecodable_records_are_written_in_the_order_of_their_table() -> None:
    letters = Letters()
    events: list[object] = []
    stage = staged(letters, on_undecodable="dead_letter")
    handler = Scripted(lambda batch: events.extend(change.offset for change in batch.changes))
    table = unit("orders", handler)
    send = letters.send

    def noting(message: Record, **fields: Any) -> str:
        events.append(("letter", message.offset()))
        return send(message, **fields)

    letters.send = noting  # type: ignore[method-assign]  # to see what comes before what
    stage.offer((table, [0, 1, BAD, BAD]))
    stage.offer((table, [4]))
    stage.run(table)
    assert events == [0, 1, ("letter", 2), ("letter", 3), 4]
    assert letters.sent == [(2, "shop.orders", None, None), (3, "shop.orders", None, None)]
    assert all(error.startswith("undecodable record: not a Canal message") for error in letters.errors)
    assert stage.checkpoint() == Checkpoint(5)


def test_an_undecodable_record_waits_for_its_letter_and_halts_in_a_flood() -> None:
    letters = Letters(refuse=[MustWait("away", 0.01), MustWait("away", 0.01), MustHalt("a flood")])
    stage, handler = staged(letters, on_undecodable="dead_letter"), Scripted()
    table = unit("orders", handler)
    stage.offer((table, [0, BAD, 2]))
    stage.run(table)
    assert seen(handler) == [[0]]
    assert (table.state, table.error) == (UnitState.HALTED, "a flood")
    assert stage.checkpoint() == Checkpoint(1)


def test_no_letter_is_begun_when_the_partition_may_be_anothers() -> None:
    stage = staged(letters := Letters(), on_undecodable="dead_letter")
    nowhere = TableBook(configuration(), lambda _rule: []).undecodable()
    nowhere.lane = nowhere.account.lane = 0
    stage.offer((nowhere, [b"\x00", b"{", b"\xff"]))
    begun, send = [], letters.send

    def lose(message: Record, **fields: Any) -> str:
        begun.append(message.offset())
        stage.lanes.trust(0.0 if len(begun) == 1 else float("inf"))
        return send(message, **fields)

    letters.send = lose  # type: ignore[method-assign]
    stage.processors[0].start()
    stage.wait(lambda: begun and nowhere.state is not UnitState.RUNNING)
    assert begun == [0]
    stage.lanes.trust(float("inf"))
    stage.wait(lambda: nowhere.at_rest)
    stage.stop()
    assert begun == [0, 1, 2]
    assert stage.checkpoint() == Checkpoint(3)


def test_records_without_a_table_are_letters_one_after_the_other_by_a_processor() -> None:
    letters = Letters(refuse=[MustWait("away", 0.01)])
    stage = staged(letters, on_undecodable="dead_letter")
    nowhere = TableBook(configuration(), lambda _rule: []).undecodable()
    nowhere.lane = nowhere.account.lane = 0
    stage.offer((nowhere, [b"\x00", b"{", b"\xff"]))
    stage.run(nowhere)
    assert letters.sent == [(offset, "__undecodable__", None, None) for offset in range(3)]
    assert all(error.startswith("undecodable record: ") for error in letters.errors)
    assert stage.checkpoint() == Checkpoint(3)
    assert nowhere.finished_records == 3


def test_a_single_early_failure_is_no_flood() -> None:
    assert Flood(0.001).exceeds(0) is None


@pytest.mark.parametrize(("ratio", "most"), [(0.1, 100), (0.57, 570), (0.001, 1), (0.0005, 0)])
def test_so_many_letters_are_taken_within_the_window(ratio: float, most: int) -> None:
    flood = Flood(ratio)
    for place in range(most):
        assert flood.exceeds(place) is None
        flood.note(place)
    assert flood.exceeds(most) == most + 1


def test_a_letter_counts_until_a_thousand_more_records_are_finished() -> None:
    flood = Flood(0.001)
    flood.note(50)
    assert flood.exceeds(50 + WINDOW - 1) == 2
    assert flood.exceeds(50 + WINDOW) is None


def test_a_ratio_of_one_is_no_limit() -> None:
    flood = Flood(1.0)
    for _ in range(3 * WINDOW):
        flood.note(7)
    assert flood.exceeds(7) is None


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20))
def test_letters_are_refused_exactly_while_one_more_would_be_over_the_share_of_the_window(
    fails: list[bool], most: int
) -> None:
    flood = Flood(most / WINDOW)
    window = 10
    kept: list[int] = []
    for place, failed in enumerate(fails):
        now = place * (WINDOW // window)  # a hundred records pass for each of them
        if not failed:
            continue
        recent = sum(each > now - WINDOW for each in kept)
        assert (flood.exceeds(now) is None) == (recent + 1 <= most)
        if recent + 1 <= most:
            flood.note(now)
            kept.append(now)


def test_a_producer_that_cannot_be_made_is_waited_for() -> None:
    letters = DeadLetters(
        DeadLetterRule(topic="dead"),
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "ssl",
            "ssl.ca.location": "/gone.pem",
        },
        worker="w",
        finished=lambda: 10**6,
        redact=str,
        metrics=Metrics(),
        back=lambda: None,
        random=lambda: 0.5,
    )
    for _ in range(2):
        with pytest.raises(MustWait, match=r"dead cannot be written: .*ssl.ca.location failed"):
            letters.send(record(0), table="t", handler=None, index=None, error="x", attempts=0)


def test_a_letter_that_ran_out_of_time_is_written_again_by_another_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def counted(*arguments: Any, **settings: Any) -> Producer:
        made.append(Producer(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(writing, "_WRITE_SECONDS", 2.0)
    letters = DeadLetters(
        DeadLetterRule(topic="dead"),
        {"bootstrap.servers": f"127.0.0.1:{free_port()}"},
        worker="w",
        finished=lambda: 10**6,
        redact=str,
        metrics=Metrics(),
        back=lambda: None,
        random=lambda: 0.0,
        producer=counted,
    )
    for number in (1, 2):
        while len(made) < number:
            with pytest.raises(MustWait):
                letters.send(record(0), table="t", handler=None, index=None, error="x", attempts=0)
