"""Random DTS records, and what their values are by the library's reader of Avro."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from dts_records import NULL, value
from fastavro import parse_schema, schemaless_reader
from hypothesis import strategies as st

from worker.formats.dts.schema import OPERATIONS, RECORD

__all__ = ["expected", "fields_of", "read_by_library", "records"]

_SCHEMA = parse_schema(RECORD)
_SOURCES = ["MySQL", "DRDS", "PostgreSQL"]
_texts = st.one_of(st.text(max_size=8), st.text(min_size=60, max_size=200))
_bytes = st.one_of(st.binary(max_size=8), st.binary(min_size=60, max_size=200))
_ints = st.integers(-(2**31), 2**31 - 1)
_longs = st.one_of(st.integers(-70, 70), st.integers(-(2**63), 2**63 - 1))
_moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


def _date_time(moment: datetime, parts: int, fraction: bool) -> Any:
    """The date alone, the time alone, or both."""
    day = {"year": moment.year, "month": moment.month, "day": moment.day}
    clock = {"hour": moment.hour, "minute": moment.minute, "second": moment.second}
    kept = (day, clock, day | clock)[parts]
    if fraction and parts:
        kept["millis"] = moment.microsecond
    return value("DateTime", **kept)


_values = st.one_of(
    st.none(),
    st.just(NULL),
    st.builds(lambda n: value("Integer", precision=8, value=str(n)), st.integers(-(2**70), 2**70)),
    st.builds(lambda t: value("Character", charset="utf8mb4", value=t.encode()), _texts),
    st.builds(lambda b: value("Character", charset="binary", value=b), _bytes),
    st.builds(
        lambda d: value("Decimal", value=f"{d:f}", precision=30, scale=-int(d.as_tuple().exponent)),
        st.decimals(places=3, allow_nan=False, allow_infinity=False),
    ),
    st.builds(lambda f: value("Float", value=f, precision=0, scale=0), st.floats(allow_nan=False)),
    st.builds(
        lambda s, m: value("Timestamp", timestamp=s, millis=m),
        st.integers(-(2**31), 2**37), st.integers(0, 999_999),
    ),
    st.builds(_date_time, _moments, st.integers(0, 2), st.booleans()),
    st.builds(
        lambda m: value(
            "TimestampWithTimeZone", value=_date_time(m, 2, True)[1], timezone="+08:30"
        ),
        _moments,
    ),
    st.builds(lambda t: value("TextGeometry", type="point", value=t), _texts),
    st.builds(lambda b: value("BinaryObject", type="blob", value=b), _bytes),
    st.builds(lambda t: value("TextObject", type="enum", value=t), _texts),
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Any record of rows that DTS could write, and some that it would not."""
    names = draw(st.lists(_texts, max_size=6, unique=True))
    # 6 is no type of MySQL: the class of a value says it all.
    row = st.lists(_values, min_size=len(names), max_size=len(names))
    before = draw(st.one_of(st.none(), row))
    if before:  # of an update most values stay the same
        row = st.tuples(*(st.one_of(st.just(same), _values) for same in before)).map(list)
    return {
        "version": draw(_ints),
        "id": draw(_longs),
        "sourceTimestamp": draw(_longs),
        "sourcePosition": draw(_texts),
        "safeSourcePosition": draw(_texts),
        "sourceTxid": draw(_texts),
        "source": {"sourceType": draw(st.sampled_from(_SOURCES)), "version": draw(_texts)},
        "operation": draw(st.sampled_from(OPERATIONS)),
        "objectName": draw(st.one_of(st.none(), _texts)),
        "processTimestamps": draw(st.one_of(st.none(), st.lists(_longs, max_size=5))),
        "tags": draw(st.dictionaries(_texts, _texts, max_size=4)),
        "fields": [{"name": name, "dataTypeNumber": 6} for name in names],
        "beforeImages": before,
        "afterImages": draw(st.one_of(st.none(), _texts, row)),
        "bornTimestamp": draw(_longs),
    }  # fmt: skip


def read_by_library(data: bytes) -> dict[str, Any]:
    found: Any = schemaless_reader(io.BytesIO(data), _SCHEMA, None, return_record_name=True)
    return found  # type: ignore[no-any-return]  # the schema is a record


def fields_of(found: Any, names: list[str]) -> Any:
    """An image that the library read, as a row; text and None stay."""
    if not isinstance(found, list):
        return found
    return {name: expected(item) for name, item in zip(names, found, strict=True)}


def expected(item: Any) -> Any:  # noqa: PLR0911 - one return a class
    """The Python value of one value that the library read."""
    if item is None or item == NULL or NULL in item:
        return None
    name, fields = item
    match name.rpartition(".")[2]:
        case "Integer":
            return int(fields["value"])
        case "Character":
            return fields["value"] if fields["charset"] == "binary" else fields["value"].decode()
        case "Decimal":
            return Decimal(fields["value"])
        case "Timestamp":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, fields["timestamp"], fields["millis"])
        case "DateTime":
            return _moment(fields)
        case "TimestampWithTimeZone":
            return _moment(fields["value"]).replace(tzinfo=UTC) - timedelta(hours=8, minutes=30)
    return fields["value"]


def _moment(fields: dict[str, int | None]) -> Any:
    clock = {"hours": fields["hour"], "minutes": fields["minute"], "seconds": fields["second"]}
    time = timedelta(**{unit: part or 0 for unit, part in clock.items()}, microseconds=fields["millis"] or 0)
    if fields["year"] is None:
        return time
    day = date(fields["year"], fields["month"] or 0, fields["day"] or 0)
    return day if fields["hour"] is None else datetime(day.year, day.month, day.day) + time
