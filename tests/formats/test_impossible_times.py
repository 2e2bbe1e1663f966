"""A time that no calendar has is the fault of its record: nobody behind the format meets it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from canal_messages import message
from captured import CapturedRecord
from debezium_messages import envelope, record
from dts_records import sent as dts_record
from json_messages import reader
from maxwell_messages import row

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.decoding import source_time
from worker.formats.dts.format import DTS
from worker.formats.interface import Format, UndecodableRecord
from worker.formats.maxwell.format import Maxwell

JSON = {"database": "db", "table": "table", "after": "row", "key": ["id"], "time": "at"}
SECOND = 1_763_000_000
LAST = 253_402_300_799_999


def own(at: Any) -> CapturedRecord:
    value = json.dumps({"db": "shop", "table": "orders", "row": {"id": 1}, "at": at}).encode()
    return CapturedRecord("t", 0, 1, SECOND, None, value, [])


def cases(time_ms: int) -> dict[str, tuple[Format, CapturedRecord]]:
    """Of each format a record with this time, as it counts."""
    flat = {"id": 1, "__op": "c", "__db": "shop", "__table": "orders", "__source_ts_ms": time_ms}
    return {
        "canal": (Canal(), message(es=time_ms)),
        "canal ddl": (Canal(), message(es=time_ms, isDdl=True, data=None, sql="DROP TABLE t")),
        "debezium": (Debezium(), record(envelope(at={"ts_ms": time_ms}, after={"id": 1}))),
        "debezium flattened": (Debezium(), record(flat)),
        "maxwell": (Maxwell(), row(ts=time_ms // 1000)),
        "json": (reader(**JSON), own(time_ms)),
        "dts": (DTS(), dts_record(sourceTimestamp=min(time_ms // 1000, 2**62))),
    }


IMPOSSIBLE = {
    "microseconds": SECOND * 1_000_000,
    "nanoseconds": SECOND * 1_000_000_000,
    "before": -62_135_596_801_000,
    "after": LAST + 1,
}


@pytest.mark.parametrize("time_ms", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
@pytest.mark.parametrize("case", cases(0))
def test_an_impossible_time_is_refused_and_not_told(case: str, time_ms: int) -> None:
    format_, one = cases(time_ms)[case]
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord):
        format_.decode(one, changes)
    assert changes == []
    assert source_time(format_, one) is None


@pytest.mark.parametrize("case", cases(0))
def test_a_number_of_any_length_is_refused(case: str) -> None:
    format_, one = cases(10**400)[case]
    with pytest.raises(UndecodableRecord):
        format_.decode(one, [])
    assert source_time(format_, one) is None


@pytest.mark.parametrize("time_ms", [LAST, 0, SECOND * 1000, -62_135_596_800_000])
@pytest.mark.parametrize("case", cases(0))
def test_a_possible_time_is_kept(case: str, time_ms: int) -> None:
    format_, one = cases(time_ms)[case]
    changes: list[Change] = []
    format_.decode(one, changes)
    assert {change.source_time_ms // 1000 for change in changes} == {time_ms // 1000}
    assert (source_time(format_, one) or 0) // 1000 == time_ms // 1000


def test_the_fast_way_refuses_it_too() -> None:
    for format_, usual, late in (
        (Canal(), message(), message(es=LAST + 1)),
        (Maxwell(), row(), row(ts=LAST)),
        (
            Debezium(),
            record(envelope(after={"id": 1})),
            record(envelope(at={"ts_ms": LAST + 1}, after={"id": 1})),
        ),
    ):
        for _ in range(200):
            format_.decode(usual, [])
        with pytest.raises(UndecodableRecord):
            format_.decode(late, [])


def test_a_time_in_kafka_that_no_calendar_has_is_refused_where_it_counts() -> None:
    value = json.dumps({"db": "shop", "table": "orders", "row": {"id": 1}}).encode()
    one = CapturedRecord("t", 0, 1, SECOND * 1_000_000, None, value, [])
    with pytest.raises(UndecodableRecord, match="its time in Kafka"):
        reader(**JSON).decode(one, [])
