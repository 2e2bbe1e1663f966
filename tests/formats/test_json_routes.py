"""Where JSON records belong, by value, key, topic and headers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from json_messages import reader, record

from worker.formats.interface import Skip, UndecodableRecord
from worker.formats.own_json.paths import Constant, Header, InKey, InValue, Topic, read_source

VALUE = {
    "db": "shop",
    "source": {"db": "shop", "name.of": {"t": "orders"}},
    "=x": "orders",
    "$x": "orders",
    "n": 5,
}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("op", InValue(("op",))),
        (".", InValue(())),
        ("a.b.c", InValue(("a", "b", "c"))),
        (r"a\.b.c", InValue(("a.b", "c"))),
        (r"a\\.b", InValue(("a\\", "b"))),
        (r"\=x", InValue(("=x",))),
        (r"\$x", InValue(("$x",))),
        (r"\.", InValue((".",))),
        ("a b.列", InValue(("a b", "列"))),
        ("=shop", Constant("shop")),
        ("=a.b", Constant("a.b")),
        ("$topic", Topic(None)),
        ("$topic.2", Topic(2)),
        ("$topic.-1", Topic(-1)),
        ("$key", InKey(())),
        ("$key.a.b", InKey(("a", "b"))),
        ("$header.db.name", Header("db.name")),
    ],
)
def test_a_place_is_read_as_it_is_written(text: str, source: object) -> None:
    assert read_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "a..b",
        "a.",
        ".a",
        "..",
        "a\\",
        "$",
        "$topic.x",
        "$topic.",
        "$topic.1.2",
        "$header",
        "$value.a",
        "$key.",
    ],
)
def test_a_place_that_is_written_wrong_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a path such as source.table, =constant, \$topic"):
        read_source(text)


@pytest.mark.parametrize(
    ("database", "table"),
    [
        ("=shop", "=orders"),
        ("db", "=orders"),
        ("db", r"source.name\.of.t"),
        ("source.db", r"source.name\.of.t"),
        ("db", r"\=x"),
        ("=shop", r"\$x"),
    ],
)
def test_where_the_value_tells_the_quick_way_finds_it(database: str, table: str) -> None:
    format_ = reader(database=database, table=table)
    one = record(VALUE)
    for route in (format_.route(one.value() or b""), format_.explain(one)):
        assert not isinstance(route, Skip)
        assert (route.database, route.table, route.alone) == ("shop", "orders", False)


@pytest.mark.parametrize(
    ("database", "table"),
    [
        ("$topic.1", "$topic.-1"),
        ("$header.db", "$header.t"),
        ("$key.db", "$key.at.t"),
        ("db", "$topic.2"),
        ("$topic.1", "=orders"),
    ],
)
def test_what_stands_beside_the_value_is_found_the_slow_way(database: str, table: str) -> None:
    key = {"db": "shop", "at": {"t": "orders"}}
    one = record(VALUE, key, headers={"db": "shop", "t": "orders"})
    format_ = reader(database=database, table=table)
    with pytest.raises(LookupError):
        format_.route(one.value() or b"")
    route = format_.explain(one)
    assert not isinstance(route, Skip)
    assert (route.database, route.table) == ("shop", "orders")


def test_the_topics_name_and_a_key_that_is_no_json_are_names() -> None:
    route = reader(database="$key", table="$topic").explain(record({}, b"sh\xc3\xb6p"))
    assert not isinstance(route, Skip)
    assert (route.database, route.table) == ("shöp", "cdc.shop.orders")


@pytest.mark.parametrize(
    ("table", "value", "said"),
    [
        ("n", VALUE, r"no table at json\.table: n \(found 5\)"),
        ("gone", VALUE, r"no table at json\.table: gone \(found nothing\)"),
        ("source.gone.t", VALUE, r"no table at json\.table: source\.gone\.t \(found nothing\)"),
        ("db.t", VALUE, "found nothing"),
        ("t", {"t": ""}, "found ''"),
        ("t", {"t": None}, "found None"),
        ("$topic.7", VALUE, "found nothing"),
        ("$header.t", VALUE, "found nothing"),
        ("$key.t", VALUE, "found nothing"),
        ("t", b"{", "not a JSON record"),
        (".", VALUE, "no table"),
    ],
)
def test_a_record_whose_table_is_not_told_is_refused(table: str, value: Any, said: str) -> None:
    with pytest.raises(UndecodableRecord, match=said):
        reader(table=table).explain(record(value))


def test_a_header_that_is_no_utf_8_is_no_name() -> None:
    one = replace(record(VALUE), headers_=[("t", "订单".encode("gbk"))])
    with pytest.raises(UndecodableRecord, match="header 't' is not UTF-8"):
        reader(table="$header.t").explain(one)


def test_a_record_to_skip_needs_no_table() -> None:
    format_ = reader(table="t", operation="op", operations={"hb": "skip", "c": "insert"})
    assert format_.explain(record({"op": "hb"})) == Skip("operation")
    with pytest.raises(UndecodableRecord, match="no table"):
        format_.explain(record({"op": "c"}))


def test_a_record_without_a_value_is_of_its_table_if_it_deletes_a_row() -> None:
    gone = record(None, {"id": 7})
    route = reader(key=["id"], table="$topic.2").explain(gone)
    assert not isinstance(route, Skip)
    assert (route.database, route.table) == ("shop", "orders")
    assert reader(table="$topic.2").explain(gone) == Skip("tombstone")
    assert reader(key=["id"], table="t").explain(gone) == Skip("tombstone")
