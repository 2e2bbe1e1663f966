"""What handlers tell of themselves, as a terminal shows it."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import msgspec
from example_worker import ERROR, status_at
from rich.console import Console, RenderableType

from worker.observing.overview.figures import Rates
from worker.observing.status import WorkerStatus
from worker.terminal.view import LiveView, Snapshot, full_view

NOW = datetime(2026, 11, 21, 10, 0, 12, tzinfo=UTC)


def drawn(view: RenderableType, width: int = 160, height: int = 60) -> str:
    text = io.StringIO()
    Console(file=text, width=width, height=height, highlight=False, color_system=None).print(view)
    return text.getvalue()


def whole(status: WorkerStatus) -> str:
    return drawn(full_view(Snapshot(status, NOW)))


def telling(*handlers: dict[str, Any]) -> WorkerStatus:
    return msgspec.structs.replace(status_at(100, shards=1), handlers=list(handlers))


def test_one_line_says_where_spark_runs_and_what_waits_for_it() -> None:
    for text in (
        whole(status_at(100, waiting=4)),
        drawn(LiveView(Snapshot(status_at(100, waiting=4), NOW), Rates(), "")),
    ):
        [line] = [line for line in text.splitlines() if line.startswith("Spark 4.2.0")]
        assert "local[2] · 9,000 rows (562 KiB) wait for 3 tables, the oldest 4.5 s" in line
        assert line.rstrip().endswith("UI http://127.0.0.1:4040")


def test_handlers_of_one_spark_are_told_in_one_line() -> None:
    one, two = status_at(100, waiting=1).handlers[0], status_at(100, waiting=1).handlers[0]
    assert whole(telling(one, two | {"handler": "history"})).count("UI http") == 1


def test_each_waiting_table_has_its_row_and_the_ones_in_trouble_come_first() -> None:
    lines = whole(status_at(100, waiting=4)).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.lstrip().startswith("Spark tables"))
    rows = [line.split() for line in lines[begin + 2 : begin + 6]]
    assert [row[0][:7] for row in rows] == ["shop_01", "shop_03", "shop_02", "shop_00"]
    assert rows[1][1:] == ["4,500", "281", "KiB", "4.5", "s", "13", "s"]
    assert rows[3][-2:] == ["-", "-"]  # nothing waits, so nothing is known to be behind


def test_a_table_that_cannot_be_brought_in_is_an_alarm() -> None:
    told = " ".join(whole(status_at(100, waiting=2)).split())
    assert f"shop_01.orders (handler replica): {ERROR}" in told


def test_another_handler_shows_what_it_tells_as_it_is() -> None:
    text = whole(telling({"handler": "mail", "type": "own:Mail", "sent": 12_345, "last": "a\x1b[31mb"}))
    assert "mail · sent 12,345 · last a\N{REPLACEMENT CHARACTER}[31mb" in text


def test_statuses_that_nobody_knows_the_shape_of_do_not_break_the_view() -> None:
    strange = {"handler": "x", "type": "y", "spark": {"ui": None}, "tables": [3, {"waiting_rows": "many"}]}
    assert "Tables" in whole(telling(strange, {"handler": "z", "type": "y", "tables": "none", "spark": 7}))
