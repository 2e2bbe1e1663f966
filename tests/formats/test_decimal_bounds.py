"""A short text never becomes megabytes of digits, in any format and in no target."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from decimal import Context, Decimal, Inexact
from typing import Any

import pytest
from captured import CapturedRecord
from debezium_messages import change_of, connect, envelope, with_schema
from debezium_messages import record as debezium
from dts_records import encode, record_fields, value
from maxwell_messages import knowing

from handlers import Change
from handlers.mysql.values import converter_of
from handlers.sql.types.values import Kind
from handlers.sql.types.values import encode as as_sql
from handlers.values.bounds import MOST_DIGITS, BeyondBounds, digits
from handlers.values.change_json import json_value
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.dts.format import DTS
from worker.formats.interface import Format, UndecodableRecord
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout
from worker.formats.own_json.rows import reader_of

HUGE = ("1e30000000", "1e-30000000", "1e999999999", "-1e200000", "1e1001")


def sent(content: object) -> CapturedRecord:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return CapturedRecord("t", 0, 0, 0, None, raw, [])


def changes(format_: Format, record: CapturedRecord) -> list[Change]:
    into: list[Change] = []
    format_.decode(record, into)
    return into


def canal(type_text: str, text: str) -> CapturedRecord:
    return sent(
        {
            "database": "shop",
            "table": "t",
            "type": "INSERT",
            "isDdl": False,
            "es": 1,
            "data": [{"id": "1", "x": text}],
            "mysqlType": {"id": "int", "x": type_text},
            "pkNames": ["id"],
        }
    )


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("type_text", ["decimal(10,2)", "decimal", "decimal(10,99999999999)", "int"])
def test_canal_refuses_it(type_text: str, number: str) -> None:
    with pytest.raises(UndecodableRecord, match="column 'x' of type"):
        changes(Canal(), canal(type_text, number))


@pytest.mark.parametrize("number", HUGE)
def test_maxwell_refuses_it(number: str) -> None:
    row = b'{"database":"shop","table":"t","type":"insert","ts":1,"data":{"id":1,"x":%s}}' % number.encode()
    with pytest.raises(UndecodableRecord):
        changes(knowing(), sent(row))


@pytest.mark.parametrize("number", HUGE)
def test_dts_refuses_it(number: str) -> None:
    fields = record_fields(
        fields=[{"name": "x", "dataTypeNumber": 246}],
        afterImages=[value("Decimal", value=number, precision=10, scale=2)],
    )
    with pytest.raises(UndecodableRecord, match="'x' in `afterImages`"):
        changes(DTS(), sent(encode(fields)))


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("columns", [{}, {"x": "decimal(10,2)"}])
def test_json_of_ones_own_refuses_it(number: str, columns: dict[str, str]) -> None:
    layout = JsonLayout.model_validate(
        {"database": "=shop", "table": "=t", "after": "row", "key": ["id"], "columns": columns}
    )
    with pytest.raises(UndecodableRecord):
        changes(Json(layout), sent(b'{"row":{"id":1,"x":%s}}' % number.encode()))


@pytest.mark.parametrize("moment", [Decimal("1e95219019"), "1e95219019", "1e-95219019", 10**40, "NaN"])
def test_a_time_beyond_all_bounds_is_none(moment: Any) -> None:
    with pytest.raises(ValueError, match="not a time in s"):
        reader_of("s")(moment)


@pytest.mark.parametrize("scale", [16_384, -1_001, 999_999_999_999])
def test_debezium_refuses_a_scale_that_no_source_has(scale: int) -> None:
    column = {"scale": scale, "value": base64.b64encode(b"\1").decode()}
    field = connect("struct", "data.VariableScaleDecimal")
    row = envelope(after={"id": 1, "x": column})
    with pytest.raises(UndecodableRecord, match=r"type decimal holds .*scale"):
        change_of(debezium(with_schema(row, {"id": connect("int32"), "x": field})))


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (connect("bytes", "org.apache.kafka.connect.data.Decimal", scale="2"), lambda text: text),
        (connect("struct", "data.VariableScaleDecimal"), lambda text: {"scale": 2, "value": text}),
    ],
    ids=["decimal", "variable"],
)
def test_debezium_refuses_a_number_that_no_source_has_before_it_is_made(
    schema: dict[str, Any], column: Callable[[str], Any]
) -> None:
    """Of a record of 1 MB Python would make a Decimal for 100 s, and no other thread would run."""

    def changed(size: int) -> Change:
        value = column(base64.b64encode(b"\x7f" * size).decode())
        row = envelope(after={"id": 1, "x": value})
        return change_of(debezium(with_schema(row, {"id": connect("int32"), "x": schema})))

    begun = time.process_time()
    with pytest.raises(UndecodableRecord, match=r"type decimal holds .*a decimal of 700000 bytes"):
        changed(700_000)
    longest = changed(61_000).after
    assert time.process_time() - begun < 5
    assert longest is not None
    exact = Context(prec=200_000, traps=[Inexact])
    assert exact.multiply(longest["x"], 100) == int.from_bytes(b"\x7f" * 61_000)


def test_an_integer_that_no_source_has_is_refused() -> None:
    row = envelope(after={"id": 1, "x": base64.b64encode(b"\x7f" * 65).decode()})
    with pytest.raises(UndecodableRecord, match="longer than an integer of any source"):
        change_of(debezium(with_schema(row, {"id": connect("int32"), "x": connect("int64")})))


@pytest.mark.parametrize("digits_sent", [84, 88, 96])
def test_digits_that_may_not_be_base64_are_a_number_however_many_they_are(digits_sent: int) -> None:
    """Read as base64 they stand for a number of twice as many digits, which the column cannot hold."""
    at = {"connector": "postgresql", "schema": "public"}
    settings = DebeziumSettings(columns={"public.orders": {"x": "numeric(100,0)"}})
    row = envelope(at=at, after={"id": 1, "x": "1" * digits_sent})
    (change,) = changes(Debezium(settings), debezium(row, {"id": 1}))
    assert (change.after or {})["x"] == Decimal("1" * digits_sent)


def test_more_bits_than_a_number_has_are_refused() -> None:
    row = envelope(after={"id": 1, "x": base64.b64encode(b"\1" * 9).decode()})
    bits = connect("bytes", "data.Bits", length="64")
    with pytest.raises(UndecodableRecord, match="more than 64 bits"):
        change_of(debezium(with_schema(row, {"id": connect("int32"), "x": bits})))


def test_what_sources_hold_stays_as_it_is() -> None:
    longest = Decimal("9" * MOST_DIGITS)
    assert digits(longest) == "9" * MOST_DIGITS
    tiny = Decimal("1e-16383")
    assert Decimal(digits(tiny)) == tiny
    widest = converter_of("decimal(65,30)")
    assert widest is not None
    assert widest.read("9" * 35 + "." + "9" * 30) == Decimal("9" * 35 + "." + "9" * 30)


@pytest.mark.parametrize("write", [json_value, lambda each: as_sql([each], Kind.TEXT, "sqlite")])
def test_no_target_writes_it_out(write: Any) -> None:
    with pytest.raises(BeyondBounds):
        write(Decimal("1e30000000"))


def test_a_binary_longer_than_any_of_mysql_is_not_filled_up() -> None:
    (change,) = changes(Canal(), canal("binary(99999999999)", "a"))
    assert change.after == {"id": 1, "x": b"a"}
