"""Whatever a format raises, or would need of memory, is that record's fault: no worker ends by it."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from typing import Any

import pytest
from building import Scripted, assignment, chunk, configuration, record, seen, unit, work
from canal_packets import packet, row, rows
from processing import Stage
from structlog.testing import capture_logs

from handlers import Change
from worker.fetching.barrier_tables import further_units
from worker.fetching.routing import Router, UndecodableHalt
from worker.formats.canal.format import Canal
from worker.formats.decoding import LARGE, SMALL, decoded_size, one_by_one
from worker.formats.interface import Record, UndecodableRecord
from worker.observing.metrics import Metrics
from worker.units.delivery import Delivery
from worker.units.table_book import TableBook
from worker.units.unit import UnitState

RAISED = [AssertionError("x"), KeyError("op"), OverflowError(), MemoryError(), RecursionError()]


def breaks_at(of: Any, offset: int, error: Exception) -> None:
    """Let the partition's format raise at this offset, after a change that it should not have appended."""
    decode = of.format.decode

    def broken(message: Record, into: list[Change]) -> None:
        decode(message, into)
        if message.offset() == offset:
            raise error

    of.format.decode = broken
    of.decode_many = one_by_one  # as of a format that has none


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_a_format_should_not_raise_is_a_fault_of_its_record(error: Exception) -> None:
    of, told = assignment(), []
    breaks_at(of, 1, error)
    made = work(unit(), chunk(of, [record(0), record(1), record(2)]))

    def passed_over(_record: Record, fault: UndecodableRecord) -> bool:
        told.append(str(fault))
        return True

    assert made.decode(passed_over) is None
    assert [change.offset for change in made.changes or ()] == [0, 2]
    assert told == [f"{type(error).__name__} at cdc.shop[0] offset 1: {error}"]


def test_the_processor_goes_on_behind_a_record_that_breaks_its_format() -> None:
    stage, handler = Stage(on_undecodable="skip"), Scripted()
    breaks_at(stage.partition, 1, AssertionError("x"))
    table = unit("orders", handler)
    stage.offer((table, [0, 1, 2]))
    with capture_logs() as logs:
        stage.run(table)
    assert not stage.errors
    assert table.state is UnitState.IDLE
    assert seen(handler) == [[0, 2]]
    assert [log["error"] for log in logs if log["event"] == "record_skipped"] == [
        "AssertionError at cdc.shop[0] offset 1: x"
    ]


def test_the_router_tells_what_explaining_a_record_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    of = assignment()
    book = TableBook(configuration({}), lambda _rule: [])

    def broken(_message: Record) -> None:
        raise AssertionError("x")

    monkeypatch.setattr(of.format, "explain", broken)
    monkeypatch.setattr(of.format, "route", broken)
    router = Router(book, Metrics(), on_undecodable="halt")
    with pytest.raises(UndecodableHalt, match=r"AssertionError at cdc\.shop\[0\] offset 0: x"):
        router.route(of, [record(0)], Delivery())


def test_a_statement_that_breaks_its_format_is_about_its_own_table_alone() -> None:
    of, own = assignment(), unit()
    breaks_at(of, 0, AssertionError("x"))
    book = TableBook(configuration({}), lambda _rule: [])
    book.units["shop"] = {"orders": own, "other": unit("other")}
    assert further_units(of, record(0), own, None, book) == ()


def test_a_record_that_would_take_too_much_when_it_is_decoded_is_refused() -> None:
    rows = SMALL // 400
    value = b'{"database":"shop","table":"orders","type":"INSERT","es":1,"data":[' + b"{}," * rows + b"{}]}"
    assert len(value) < SMALL // 100
    assert decoded_size(value) > SMALL
    made = work(unit(), chunk(assignment(), [record(0), record(1, value=value)]))
    place, told = made.decode(lambda _record, _fault: False) or (None, "")
    assert place == 1
    assert str(told).startswith("the decoded record would take about 64 MiB, but at most 64 MiB are allowed")
    assert made.decode(lambda _record, _fault: False, SMALL * 2) is None


def test_a_packet_that_would_take_too_much_when_it_is_decoded_is_refused() -> None:
    tracemalloc.start()
    for columns in (1, 20):
        of_row = row({f"c{number}": "a text" for number in range(columns)}, types=defaultdict(lambda: "text"))
        value = packet(rows("orders", *[of_row] * (20_000 // columns)))
        changes: list[Change] = []
        before = tracemalloc.get_traced_memory()[0]
        Canal().decode(record(0, value=value), changes)
        taken = tracemalloc.get_traced_memory()[0] - before
        assert taken / 2 <= decoded_size(value) <= 10 * taken
    tracemalloc.stop()
    made = work(
        unit(), chunk(assignment(), [record(0, value=packet(*[rows("orders", *[of_row] * 900)] * 20))])
    )
    assert made.decode(lambda _record, _fault: False, 1 << 20) is not None


def test_a_large_record_of_usual_rows_is_decoded() -> None:
    made = work(unit(), chunk(assignment(), [record(0, rows=20_000, note="x" * LARGE)]))
    assert made.decode(lambda _record, _fault: False) is None
    assert made.total == 20_000
