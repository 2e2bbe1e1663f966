"""The same workload, captured by different tools, gives the same changes.

Each stream is compared with Canal's, table by table, change by change: operation, key, the rows before and
after, types. What may differ is named here with its cause, and must differ.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from captured import truth
from workload_events import Event, events

Differences = dict[tuple[str, str], int]
"""(table, column or what else is not the same) -> in how many rows."""

ABSENT = "absent"  # of a column: this row does not have it
_DISPLAY_WIDTH = re.compile(r"((?:small|medium|big)?int|year|tinyint)\((?!1\))\d+\)")


# ---- what is known to be told otherwise


def without_bootstrap(found: Differences, tables: dict[str, list[Event]]) -> None:
    """Maxwell was asked for a bootstrap, by a row in its own table: the rows of one table come once more."""
    for table, rows in tables.items():
        kept = [event for event in rows if event.op != "snapshot" and table != "maxwell.bootstrap"]
        if len(kept) < len(rows):
            found[table, "rows once more"] = len(rows) - len(kept)
        rows[:] = kept


def snapshot_as_inserts(found: Differences, tables: dict[str, list[Event]]) -> None:
    """Debezium began when the first rows were there; it reads them in an order of its own."""
    for table, rows in tables.items():
        rows[:] = [event._replace(op="insert") if event.op == "snapshot" else event for event in rows]
        first = len(truth("snapshot")[table].rows) if table in truth("snapshot") else 0
        rows[:first] = sorted(rows[:first], key=order_of_key)


def order_of_key(event: Event) -> str:
    row = event.after or {}
    return repr([row[column] for column in event.key_columns or row])


def unique_key_as_none(found: Differences, tables: dict[str, list[Event]]) -> None:
    """Debezium takes a unique key for the key, where there is no other: a change of it is two changes."""
    for table, rows in tables.items():
        if table != "crm.only_unique":
            continue
        merged: list[Event] = []
        for event in rows:
            gone = merged[-1] if merged else None
            if gone is not None and (gone.op, event.op) == ("delete", "insert"):
                merged[-1] = event._replace(op="update", before=gone.before)
                found[table, "an update as a delete and an insert"] = 1
            else:
                merged.append(event)
        found[table, "key"] = sum(event.key_columns == ("code",) for event in merged)
        rows[:] = [event._replace(key_columns=None) for event in merged]


def prepared(stream: str, found: Differences) -> dict[str, list[Event]]:
    """The stream's changes in the form of Canal's; what was not in that form is noted in `found`."""
    tables = {table: list(rows) for table, rows in events(stream).items()}
    if stream == "maxwell":
        without_bootstrap(found, tables)
    snapshot_as_inserts(found, tables)
    if stream.startswith("debezium"):
        unique_key_as_none(found, tables)
    return {table: rows for table, rows in tables.items() if rows}


# ---- comparing


def differences(stream: str) -> tuple[Differences, set[str]]:
    """Where a stream differs from Canal's, and the tables that it holds."""
    found: Counter[tuple[str, str]] = Counter()
    expected, tables = prepared("canal", Counter()), prepared(stream, found)
    for table, rows in tables.items():
        there = expected[table]
        assert [event.op for event in rows] == [event.op for event in there], table
        for event, other in zip(rows, there, strict=True):
            compare(found, table, event, other)
    return {place: count for place, count in found.items() if count}, set(tables)


def compare(found: Counter[tuple[str, str]], table: str, event: Event, other: Event) -> None:
    if event.key_columns != other.key_columns:
        found[table, "key"] += 1
    for image, its_image in ((event.before, other.before), (event.after, other.after)):
        if image is None or its_image is None:
            found[table, "no row before"] += image is not its_image
            continue
        for column in image.keys() | its_image.keys():
            value, its_value = image.get(column, ABSENT), its_image.get(column, ABSENT)
            if repr(value) == repr(its_value):
                continue
            only_zeros = isinstance(value, Decimal) and isinstance(its_value, Decimal) and value == its_value
            found[table, f"{column} (zeros)" if only_zeros else column] += 1


def compared(stream: str, expected: Mapping[str, Differences]) -> set[str]:
    """Assert that the stream differs from Canal's exactly so; `expected`: cause -> differences."""
    found, tables = differences(stream)
    named = Counter(place for cause in expected.values() for place in cause)
    assert max(named.values(), default=1) == 1, "one difference has one cause"
    assert found == {place: count for cause in expected.values() for place, count in cause.items()}
    return tables


LATIN1_OF_CANAL = {("shop.all_types", "c_latin"): 206}
DOUBLED_BACKTICK_OF_CANAL = {("shop.order.items", "q`tick"): 8, ("shop.order.items", "q``tick"): 8}


def test_canal_and_dts() -> None:
    tables = compared(
        "dts",
        {
            "DTS writes the digits of a value, not those of its type": {
                ("crm.contacts", "rating (zeros)"): 2,
                ("crm.contacts", "score (zeros)"): 9,
                ("crm.dec_key", "k (zeros)"): 3,
                ("crm.uuids", "d (zeros)"): 7,
                ("shop.all_types", "c_dec (zeros)"): 35,
                ("shop.all_types", "c_dec2 (zeros)"): 21,
                ("shop.customers", "balance (zeros)"): 10,
                ("shop.order-items", "price (zeros)"): 27,
                ("shop.orders", "total (zeros)"): 151,
                ("shop.orders", "total_g (zeros)"): 10,
            },
            "Canal doubles a backtick in a name": DOUBLED_BACKTICK_OF_CANAL,
        },
    )
    assert tables == set(prepared("canal", Counter()))


def test_canal_and_maxwell() -> None:
    tables = compared(
        "maxwell",
        {
            "Maxwell was asked for a bootstrap": {
                ("maxwell.bootstrap", "rows once more"): 1,
                ("shop.customers", "rows once more"): 40,
            },
            "Maxwell makes a bit(64) of pieces of 32 bits": {("shop.all_types", "c_bit64"): 133},
            "Maxwell writes a TIME beyond a day as a time of day": {
                ("shop.all_types", "c_time"): 11,
                ("shop.all_types", "c_time6"): 11,
            },
            "Maxwell writes JSON's null as NULL, 1e100 with all its digits; Canal writes 1.0E100": {
                ("shop.all_types", "c_json"): 43
            },
            "Canal reads latin1 as UTF-8": LATIN1_OF_CANAL,
        },
    )
    assert tables == set(prepared("canal", Counter()))


OF_EVERY_DEBEZIUM = {
    "Debezium writes dates that no calendar has as 1970-01-01": {("crm.legacy", "d"): 4},
    "Debezium writes floats of its snapshot with six digits": {("shop.all_types", "c_float"): 15},
    "Debezium writes 1e100 in JSON with all its digits; Canal writes 1.0E100": {
        ("shop.all_types", "c_json"): 22
    },
    "Canal reads latin1 as UTF-8": LATIN1_OF_CANAL,
}


@pytest.mark.parametrize("stream", ["debezium-schemas", "debezium-plain"])
def test_canal_and_debezium(stream: str) -> None:
    tables = compared(
        stream,
        OF_EVERY_DEBEZIUM
        | {
            "Debezium takes a unique key for the key": {
                ("crm.only_unique", "an update as a delete and an insert"): 1,
                ("crm.only_unique", "key"): 4,
            },
            "Canal doubles a backtick in a name": DOUBLED_BACKTICK_OF_CANAL,
        },
    )
    assert tables == set(prepared("canal", Counter()))


def test_canal_and_debezium_with_texts_for_numbers_and_times_of_connect() -> None:
    tables = compared(
        "debezium-strings",
        OF_EVERY_DEBEZIUM
        | {
            "time.precision.mode=connect cuts to milliseconds, and has no TIME beyond a day": {
                ("shop.all_types", "c_dt6"): 243,
                ("shop.all_types", "c_time"): 11,
                ("shop.all_types", "c_time6"): 249,
            }
        },
    )
    assert tables == {
        "crm.audit", "crm.coupons_copy", "crm.dec_key", "crm.legacy", "crm.uuids", "shop.all_types",
        "shop.customers",
    }  # fmt: skip


def test_canal_and_flattened_debezium() -> None:
    tables = compared(
        "debezium-unwrap",
        {
            "a flattened record has no row before": {
                ("crm.contacts", "no row before"): 7,
                ("crm.event_log", "no row before"): 4,
                ("crm.tags", "no row before"): 2,
                ("shop.customers", "no row before"): 75,
                ("shop.order-items", "no row before"): 1,
                ("shop.orders", "no row before"): 344,
            },
            "these did not say the file of their place: columns that are gone have no type in the end": {
                ("crm.contacts", "flag"): 6,
                ("crm.contacts", "rating"): 2,
                ("crm.contacts", "score"): 5,
            },
        },
    )
    assert tables == {
        "crm.contacts", "crm.event_log", "crm.tags", "shop.customers", "shop.order-items", "shop.orders",
    }  # fmt: skip


# ---- types


def types_of(stream: str) -> dict[tuple[str, str], list[str | None]]:
    """(table, column) -> its types, one after the other."""
    found: dict[tuple[str, str], list[str | None]] = defaultdict(list)
    for table, rows in prepared(stream, Counter()).items():
        for event in rows:
            for column in (event.after if event.before is None else event.before) or ():
                text = (event.types or {}).get(column)
                text = text and _DISPLAY_WIDTH.sub(r"\1", text)
                if found[table, column][-1:] != [text]:
                    found[table, column].append(text)
    return found


@pytest.mark.parametrize("stream", ["maxwell", "debezium-schemas", "debezium-plain", "debezium-strings"])
def test_types_are_told_in_the_same_words(stream: str) -> None:
    expected, found = types_of("canal"), types_of(stream)
    names: Sequence[tuple[str, str]] = [("shop.order.items", "q`tick"), ("shop.order.items", "q``tick")]
    for name in found.keys() - names:
        assert found[name] == expected[name], name
    assert len(found) > 60
