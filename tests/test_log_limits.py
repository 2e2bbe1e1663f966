"""What comes with every record is told some times a minute, and counted always."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import pytest
from prometheus_client import generate_latest

from worker.observing import log_limits, logs
from worker.observing.log_limits import LogLimits
from worker.observing.metrics import Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> LogLimits:
    return LogLimits(clock)


@pytest.fixture
def stream(limits: LogLimits, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(logs, "LIMITS", limits)
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    return stream


def told(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def admitted(limits: LogLimits, name: str, **fields: Any) -> dict[str, Any] | None:
    event = {"event": name, **fields}
    return event if limits.admit("error", event) else None


def test_a_million_failures_are_few_lines_and_all_of_them_are_counted(limits: LogLimits) -> None:
    lines = 0
    events = [
        {"event": "record_skipped", "position": f"cdc[{number}] offset {number}"} for number in range(3)
    ]
    for event in itertools.islice(itertools.cycle(events), 1_000_000):
        lines += limits.admit("error", event)
    assert lines == 30
    levels, left_out = limits.counts()
    assert (levels, left_out) == ({"error": 1_000_000}, {"record_skipped": 999_970})
    [line] = limits.due(all_of_it=True)
    assert (line["of"], line["lines"]) == ("record_skipped", 999_970)
    assert line["most"] == {"cdc[0]": 333_324, "cdc[1]": 333_323, "cdc[2]": 333_323}


def test_the_log_itself_has_few_lines_and_the_metrics_count_all(
    stream: io.StringIO, limits: LogLimits
) -> None:
    log = logs.get_logger("processor")
    for offset in range(2_000):
        log.error("record_skipped", position=f"cdc[0] offset {offset}", error="no JSON")
    logs.tell_left_out(all_of_it=True)
    *lines, last = told(stream)
    assert [line["position"] for line in lines] == [f"cdc[0] offset {offset}" for offset in range(10)]
    assert (last["event"], last["level"], last["of"], last["lines"]) == (
        "lines_left_out",
        "warning",
        "record_skipped",
        1_990,
    )
    scrape = generate_latest(Metrics(log_limits=limits).registry).decode()
    assert '\nbinlane_log_events_total{level="error"} 2000.0\n' in scrape
    assert '\nbinlane_log_lines_left_out_total{event="record_skipped"} 1990.0\n' in scrape
    assert '\nbinlane_log_lines_left_out_total{event="batch_failed"} 0.0\n' in scrape


def test_another_event_is_told_as_often_as_it_comes(limits: LogLimits) -> None:
    assert all(admitted(limits, "partitions_revoked") == {"event": "partitions_revoked"} for _ in range(500))
    assert limits.due(all_of_it=True) == []


def test_what_is_below_the_level_is_neither_told_nor_counted(stream: io.StringIO, limits: LogLimits) -> None:
    logs.get_logger("processor").debug("handler_failed", handler="sql")
    assert (told(stream), limits.counts()) == ([], ({}, {}))


def test_the_next_line_of_a_subject_says_how_many_were_left_out(limits: LogLimits, clock: Clock) -> None:
    for _ in range(25):
        admitted(limits, "batch_failed", table="shop.a")
    admitted(limits, "batch_failed", table="shop.b")
    clock.now = 60.0
    assert admitted(limits, "batch_failed", table="shop.b") == {"event": "batch_failed", "table": "shop.b"}
    assert (admitted(limits, "batch_failed", table="shop.a") or {})["repeated"] == 15
    assert "repeated" not in (admitted(limits, "batch_failed", table="shop.a") or {})
    clock.now = 120.0
    assert limits.due() == []


def test_what_has_no_next_line_is_told_once_when_its_minute_is_over(limits: LogLimits, clock: Clock) -> None:
    for _ in range(25):
        admitted(limits, "batch_failed", table="shop.a")
    assert limits.due() == []
    clock.now = 60.0
    assert limits.due() == [{"of": "batch_failed", "lines": 15, "most": {"shop.a": 15}}]
    assert limits.due() == []
    assert "repeated" not in (admitted(limits, "batch_failed", table="shop.a") or {})


def test_what_has_no_next_line_is_told_though_others_of_its_event_go_on(
    limits: LogLimits, clock: Clock
) -> None:
    for _ in range(25):
        admitted(limits, "batch_failed", table="shop.a")
    told_of = 0
    for tenth in range(1, 1_900):
        clock.now = tenth / 10
        admitted(limits, "batch_failed", table="shop.b")
        if tenth % 10 == 5:  # less often than lines come
            told_of += sum(line["most"].get("shop.a", 0) for line in limits.due())
    assert told_of == 15


def test_many_subjects_are_a_hundred_lines_and_bounded_memory(limits: LogLimits, clock: Clock) -> None:
    lines = 0
    for minute in range(3):
        clock.now = 60.0 * minute
        for number in range(5_000):
            lines += admitted(limits, "batch_failed", table=f"shop.t{minute}_{number}") is not None
    assert lines == 300
    held = limits._events["batch_failed"]
    assert len(held.subjects) <= log_limits._SUBJECTS + 1
    assert len(held.before) <= log_limits._SUBJECTS
    [line] = limits.due(all_of_it=True)
    assert line["lines"] == 15_000 - 300
    assert len(line["most"]) == 5


def test_no_level_and_no_event_is_missing_from_the_first_scrape() -> None:
    scrape = generate_latest(Metrics(log_limits=LogLimits()).registry).decode()
    for level in ("debug", "info", "warning", "error", "critical"):
        assert f'\nbinlane_log_events_total{{level="{level}"}} 0.0\n' in scrape
