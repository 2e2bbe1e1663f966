"""The `log` handler: what a line holds, and when there is none."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import structlog

from handlers import Batch, Change, HandlerContext, PartialFailure, Rejected
from handlers.log import LogHandler
from handlers.options.faults import check_options
from handlers.testing import make_batch, opened
from worker.observing import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    yield stream
    structlog.reset_defaults()


def shop_batch() -> Batch:
    common = {
        "key_columns": ("id",),
        "source_time_ms": 1763000000000,
        "topic": "cdc.shop",
        "partition": 3,
        "transaction": None,
        "types": None,
    }
    changes = [
        Change(
            op="insert",
            before=None,
            after={"id": 1, "total": Decimal("9061.00"), "raw": b"\xff"},
            sql=None,
            offset=7,
            index=0,
            **common,
        ),
        Change(op="delete", before={"id": 1}, after=None, sql=None, offset=8, index=1, **common),
        Change(op="ddl", before=None, after=None, sql="TRUNCATE orders", offset=9, index=0, **common),
    ]
    positions = {("cdc.shop", 3): (7, 9)}
    return Batch("shop.orders", changes, database="shop", name="orders", positions=positions)


def written(stream: io.StringIO, **options: Any) -> list[dict[str, Any]]:
    handler = LogHandler(**options)
    handler.open(HandlerContext(worker="w", handler="audit", folder=Path()))
    handler.handle(shop_batch())
    handler.close()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_change_is_a_line_with_its_values(stream: io.StringIO) -> None:
    insert, delete, ddl = written(stream)
    insert.pop("timestamp")
    assert insert == {
        "level": "info",
        "logger": "handlers.log",
        "event": "change",
        "handler": "audit",
        "table": "shop.orders",
        "op": "insert",
        "key": {"id": 1},
        "after": {"id": 1, "total": "9061.00", "raw": {"base64": "/w=="}},
        "source_time_ms": 1763000000000,
        "position": "cdc.shop[3]@7",
        "index": 0,
    }
    assert (delete["op"], delete["before"], delete["position"]) == ("delete", {"id": 1}, "cdc.shop[3]@8")
    assert (ddl["op"], ddl["sql"]) == ("ddl", "TRUNCATE orders")


def test_each_batch_is_a_line_with_its_counts(stream: io.StringIO) -> None:
    (line,) = written(stream, each="batch", level="warning")
    assert line["level"] == "warning"
    assert (line["table"], line["changes"], line["attempt"]) == ("shop.orders", 3, 1)
    assert line["operations"] == {"insert": 1, "delete": 1, "ddl": 1}
    assert line["positions"] == {"cdc.shop[3]": [7, 9]}


def test_a_level_below_the_logs_own_writes_nothing(stream: io.StringIO) -> None:
    assert written(stream, level="debug") == []


def test_other_words_are_faults() -> None:
    faults = {
        fault.path: fault.nearest for fault in check_options(LogHandler, {"each": "changes", "lvl": "info"})
    }
    assert faults == {("each",): "change", ("lvl",): "level"}


def test_a_value_without_a_form_is_rejected_after_the_lines_before_it(stream: io.StringIO) -> None:
    rows = make_batch("shop.orders", [{"id": 1}, {"id": object()}], topic="cdc", partition=3, offset=7)
    with (
        opened(LogHandler()) as handler,
        pytest.raises(PartialFailure) as caught,
    ):
        handler.handle(rows)
    assert caught.value.done == 1
    assert isinstance(caught.value.cause, Rejected)
    assert "shop.orders, cdc[3] offset 8" in str(caught.value.cause)
    assert len(stream.getvalue().splitlines()) == 1
