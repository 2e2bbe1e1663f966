"""Dates and times beyond Python's calendar as values: compared, copied, written as text."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from handlers import BeyondCalendar
from handlers.values.change_json import json_value

IN_ORDER: list[Any] = [
    BeyondCalendar("-infinity"),
    BeyondCalendar("4713-01-01 BC"),
    BeyondCalendar("0044-03-15 BC"),
    BeyondCalendar("0044-03-15 12:00:00 BC"),
    BeyondCalendar("0001-12-31 23:59:59.999999 BC"),
    date(1, 1, 1),
    date(9999, 12, 31),
    BeyondCalendar("10000-01-01"),
    BeyondCalendar("20000-01-01 00:00:00.5+00"),
    BeyondCalendar("294276-12-31 23:59:59.999999"),
    BeyondCalendar("infinity"),
]


def test_they_are_in_order_with_each_other_and_with_dates() -> None:
    for place, left in enumerate(IN_ORDER):
        for other, right in enumerate(IN_ORDER):
            assert ((left < right), (left <= right)) == (place < other, place <= other)
            assert ((left > right), (left >= right)) == (place > other, place >= other)
            assert (left == right) is (place == other)
    assert BeyondCalendar("-infinity") < datetime(1, 1, 1, tzinfo=UTC) < BeyondCalendar("infinity")


def test_midnight_with_and_without_its_zone_is_the_day_itself() -> None:
    same = {BeyondCalendar(f"20000-01-01{clock}") for clock in ("", " 00:00:00", " 00:00:00.000+00")}
    assert len(same) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Infinity",
        "2026-01-01",
        "9999-12-31 23:59:59",
        "0000-01-01",
        "0000-01-01 BC",
        "44-03-15 BC",
        "20000-01-01T00:00:00",
        "20000-01-01 00:00:00+01",
        "20000-01-01\n",
    ],
)
def test_what_is_in_the_calendar_or_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time beyond the calendar"):
        BeyondCalendar(text)


@pytest.mark.parametrize("value", [one for one in IN_ORDER if isinstance(one, BeyondCalendar)])
def test_copies_are_equal_and_json_has_the_text(value: BeyondCalendar) -> None:
    for same in (copy.deepcopy(value), pickle.loads(pickle.dumps(value)), BeyondCalendar(str(value))):
        assert (same, hash(same), str(same)) == (value, hash(value), str(value))
    assert json_value([value]) == [str(value)]


def test_no_encoder_takes_one_for_something_else_unasked() -> None:
    value = BeyondCalendar("infinity")
    assert not isinstance(value, str | date)
    with pytest.raises(TypeError):
        msgspec.json.encode(value)
    assert msgspec.json.encode(value, enc_hook=str) == b'"infinity"'
