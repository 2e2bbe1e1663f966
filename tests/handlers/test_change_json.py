"""Values in JSON: nothing lost, as docs/formats.md promises."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from handlers import BeyondCalendar
from handlers.values.change_json import json_row, json_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        ("订单", "订单"),
        (18446744073709551615, 18446744073709551615),
        (-(2**70), -(2**70)),
        (0.10000000149011612, 0.10000000149011612),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("9061.00"), "9061.00"),
        (Decimal("1E-10"), "0.0000000001"),
        (datetime(2012, 3, 13, 20, 3, 4, 861000), "2012-03-13T20:03:04.861000"),
        (datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), "2038-01-19T03:14:07+00:00"),
        (date(1000, 1, 1), "1000-01-01"),
        (-timedelta(hours=838, minutes=59, seconds=59), "-838:59:59"),
        (timedelta(microseconds=1), "00:00:00.000001"),
        (BeyondCalendar("0044-03-15 12:00:00+00 BC"), "0044-03-15 12:00:00+00 BC"),
        (b"\x00\xff", {"base64": "AP8="}),
        (("a", "c"), ["a", "c"]),
        ({"n": [Decimal("1.50")]}, {"n": ["1.50"]}),
    ],
)
def test_a_value_has_one_form(value: Any, expected: Any) -> None:
    found = json_value(value)
    assert found == expected
    assert type(found) is type(expected)
    assert json_row({"column": value}) == {"column": expected}
    assert json.loads(json.dumps(found)) == expected


def test_a_value_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="of type complex cannot be written as JSON"):
        json_value(1j)
