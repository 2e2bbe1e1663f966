"""Where transactions begin and end, by what each tool's records tell."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import canal_packets
import pytest
from captured import CapturedRecord, records
from dts_records import dts_stream, encode, record_fields

from handlers import Change
from worker.formats.decoding import LARGE, transactions_of
from worker.formats.dts.record import read_header
from worker.formats.interface import Record
from worker.formats.registry import get
from worker.units.assigned_partition import Transactions


def borders(format_: str, rows: Iterable[Record]) -> list[int]:
    return found_by(Transactions(get(format_)), list(rows))


def found_by(known: Transactions, rows: list[Record]) -> list[int]:
    known.read(rows, None)
    offsets = range(rows[-1].offset() + 2)
    return sorted({border for offset in offsets if (border := known.begin(offset)) >= 0})


def by_partition(stream: str) -> list[list[CapturedRecord]]:
    found: dict[tuple[str, int], list[CapturedRecord]] = defaultdict(list)
    for record in records(stream):
        found[record.topic(), record.partition()].append(record)
    return [sorted(own, key=CapturedRecord.offset) for own in found.values()]


def _in_envelope(value: dict[str, Any]) -> object:
    """The name of a row's transaction, read in another way. None: it has none."""
    payload = value.get("payload", value)
    if payload.get("op") in (None, "r"):
        return None
    return payload["source"].get("txId") or payload["source"].get("gtid")


READ: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "debezium-plain": ("debezium", _in_envelope),
    "debezium-schemas": ("debezium", _in_envelope),
    "postgres-plain": ("debezium", _in_envelope),
    "maxwell": ("maxwell", lambda value: value.get("xid")),
}


@pytest.mark.parametrize("stream", READ)
def test_two_rows_of_a_real_stream_have_a_border_between_them_if_their_transactions_differ(
    stream: str,
) -> None:
    format_, name_of = READ[stream]
    apart = together = 0
    for partition in by_partition(stream):
        known = borders(format_, partition)
        rows = []
        for record in partition:
            value = None if record.value() is None else json.loads(record.value() or b"")
            if value is not None and "ddl" not in value and "def" not in value and "status" not in value:
                rows.append((record.offset(), name_of(value)))
        for (first, one), (second, other) in pairwise(rows):
            differ = one != other or one is None
            assert any(first < border <= second for border in known) == differ, (partition[0].topic(), second)
            apart, together = apart + differ, together + (not differ)
    assert apart > 100
    assert together > 100


def sent(*values: bytes | dict[str, Any] | None) -> list[CapturedRecord]:
    data = [json.dumps(value).encode() if isinstance(value, dict) else value for value in values]
    return [
        CapturedRecord("my.shop.orders", 0, place, 1763000000123, None, value, [])
        for place, value in enumerate(data)
    ]


def message(gtid: str) -> dict[str, Any]:
    return {"database": "shop", "table": "orders", "type": "INSERT", "gtid": gtid, "es": 1, "data": []}


def test_messages_of_canal_have_a_gtid_at_most() -> None:
    assert borders("canal", sent(*map(message, ("g1", "g1", "g2", "g2")))) == [0, 2]
    assert borders("canal", sent(*map(message, ("g1", "g1", "", "", "")))) == [0, 2, 3, 4, 5]


BEGIN, ROWS, END = canal_packets.begin(), canal_packets.rows("orders"), canal_packets.end()


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ([(BEGIN, ROWS, END), (BEGIN, ROWS, END)], [0, 1, 2]),
        ([(BEGIN, ROWS), (ROWS,), (ROWS, END), (BEGIN, ROWS)], [0, 3]),
        ([(BEGIN, ROWS), (ROWS, END, BEGIN, ROWS), (ROWS, END)], [0, 3]),
        ([(BEGIN, ROWS), (END,), (BEGIN, ROWS)], [0, 2]),
        ([(ROWS,), (ROWS,)], [1, 2]),
    ],
    ids=["one each", "one in three", "two of three", "a mark alone", "no marks"],
)
def test_packets_of_canal_have_marks(packets: list[tuple[bytes, ...]], expected: list[int]) -> None:
    """A packet is never cut. One that ends a transaction and begins another holds the two together."""
    assert borders("canal", sent(*(canal_packets.packet(*each) for each in packets))) == expected


def test_dts_has_marks() -> None:
    stream = [record for record in dts_stream() if len(record.value() or b"") > 2]
    operations = {record.offset(): read_header(record.value() or b"").operation for record in stream}
    known = borders("dts", dts_stream())
    rows = [offset for offset, name in operations.items() if name in ("INSERT", "UPDATE", "DELETE")]
    together = 0
    for first, second in pairwise(rows):
        ended = any(operations.get(offset) == "COMMIT" for offset in range(first, second))
        assert any(first < border <= second for border in known) == ended
        together += not ended
    assert together > 100


def test_dts_has_marks_where_the_transaction_has_no_number() -> None:
    operations = ("BEGIN", "INSERT", "INSERT", "COMMIT", "BEGIN", "INSERT")
    values = [encode(record_fields(operation=operation)) for operation in operations]
    assert borders("dts", sent(*values)) == [0, 4]


def test_the_last_row_of_maxwell_has_a_mark() -> None:
    rows: list[dict[str, Any]] = [{"xid": 7}, {"xid": 7, "commit": True}, {"xid": 8}, {}, {}]
    assert borders("maxwell", sent(*rows)) == [0, 2, 3, 4, 5]


def envelope(op: str = "c", transaction: str | None = None, **source: Any) -> dict[str, Any]:
    block = None if transaction is None else {"id": transaction, "total_order": 1}
    return {"op": op, "source": {"connector": "mysql", "db": "shop", **source}, "transaction": block}


@pytest.mark.parametrize(
    "rows",
    [
        [envelope(gtid="u:1"), envelope(gtid="u:1"), None, envelope(gtid="u:2")],
        [envelope(transaction="u:1"), envelope("u", "u:1"), None, envelope("d", "u:2")],
        [envelope(transaction="9:100", txId=9), envelope(txId=9), None, envelope(txId=10)],
        [{"schema": {}, "payload": envelope(txId=each)} if each else None for each in (9, 9, 0, 10)],
        [
            each and {"id": 1, "__op": "c", "__table": "orders", "__db": "shop", "__transaction_id": each}
            for each in ("u:1", "u:1", None, "u:2")
        ],
        [
            each and {"id": 1, "__op": "c", "__table": "orders", "__schema": "shop", "__transaction_id": each}
            for each in ("9:100", "9:120", None, "10:140")
        ],
    ],
    ids=["gtid", "metadata", "PostgreSQL", "schemas", "flattened", "flattened, PostgreSQL"],
)
def test_debezium_names_transactions(rows: list[dict[str, Any] | None]) -> None:
    """A tombstone belongs to the delete before it."""
    assert borders("debezium", sent(*rows)) == [0, 3]


def test_rows_of_a_snapshot_stand_alone() -> None:
    rows = [envelope("r", txId=9), envelope("r", txId=9), envelope("c", txId=9)]
    assert borders("debezium", sent(*rows)) == [0, 1, 2]


def test_a_record_that_cannot_be_read_tells_nothing() -> None:
    for name in ("canal", "debezium", "dts", "maxwell"):
        assert borders(name, sent(b"nonsense", None)) == [1, 2]


def test_another_format_uses_the_transactions_of_its_changes() -> None:
    from worker.formats.own_json.format import Json
    from worker.formats.own_json.layout import JsonLayout

    layout = JsonLayout.model_validate(
        {"database": "db", "table": "table", "after": "row", "transaction": "tx", "key": "id"}
    )
    values = [{"db": "shop", "table": "t", "row": {"id": n}, "tx": n // 2} for n in range(4)]
    assert found_by(Transactions(Json(layout)), list(sent(*values))) == [0, 2]


def test_a_record_is_not_decoded_for_this_if_that_takes_too_much_memory() -> None:
    sizes = []

    class Other:
        def decode(self, record: Record, into: list[Change]) -> None:
            sizes.append(len(record))

    for size in (1_000, LARGE):
        transactions_of(Other(), sent(b"{}," * size)[0])  # type: ignore[arg-type]  # nothing else is called
    assert sizes == [3_000]


def test_records_that_come_again_change_nothing() -> None:
    rows = sent(*({"xid": place // 2} for place in range(6)))
    known = Transactions(get("maxwell"))
    known.read(rows[:4], None)
    assert found_by(known, list(rows[1:])) == [0, 2, 4]
