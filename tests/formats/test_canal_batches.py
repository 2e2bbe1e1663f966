"""A table's Canal messages at one go: the same changes as one by one, each read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest
from canal_messages import message, row
from captured import CapturedRecord, records

from handlers import Change
from worker.formats import json_rows
from worker.formats.canal import format as canal_format
from worker.formats.canal.format import Canal
from worker.formats.interface import Skip, UndecodableRecord

PRACTICE = 100  # more messages of one shape than a decoder of its own takes


def many(format_: Canal, table: str, messages: Iterable[CapturedRecord]) -> list[Change]:
    changes: list[Change] = []
    assert format_.decode_many(table, iter(messages), changes, []) is None
    return changes


def test_a_real_stream_gives_the_changes_that_its_records_give_one_by_one() -> None:
    alone, together = Canal(), Canal()
    tables: dict[str, list[CapturedRecord]] = defaultdict(list)
    for record in records("canal"):
        route = alone.explain(record)
        if not isinstance(route, Skip):
            tables[f"{route.database}.{route.table}"].append(record)
    for _ in range(3):  # the later ones with decoders of their own
        for table, own in tables.items():
            expected: list[Change] = []
            ends = []
            for record in own:
                alone.decode(record, expected)
                ends.append(len(expected))
            changes: list[Change] = []
            found: list[int] = []
            assert together.decode_many(table, iter(own), changes, found) is None
            assert changes == expected
            assert found == ends


def test_the_first_bad_record_is_given_back_and_the_rest_is_left() -> None:
    format_ = Canal()
    many(format_, "shop.orders", [message()] * PRACTICE)
    bad = row(total="much")
    left = iter([message(), bad, message(), message(type="UPDATE", old=[{"id": "none"}]), message()])
    changes: list[Change] = []
    ends: list[int] = []
    assert format_.decode_many("shop.orders", left, changes, ends) is bad
    assert (len(changes), ends) == (1, [1])
    with pytest.raises(UndecodableRecord):
        format_.decode(bad, changes)
    second = format_.decode_many("shop.orders", left, changes, ends)
    assert second is not None
    assert (len(changes), ends) == (2, [1, 2])
    assert format_.decode_many("shop.orders", left, changes, ends) is None
    assert (len(changes), ends) == (3, [1, 2, 3])


def test_what_a_format_should_not_raise_gives_the_record_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    format_, changes = Canal(), list[Change]()

    def broken(*_: object) -> None:
        raise AssertionError("x")

    monkeypatch.setattr(canal_format, "changes_of", broken)
    deleted = message(type="DELETE")
    assert format_.decode_many("shop.orders", iter([message(), deleted]), changes, []) is deleted
    assert len(changes) == 1


def test_tables_of_other_shapes_by_turns_are_each_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    format_, shapes, texts = Canal(), 0, 0
    of_table = {
        "shop.orders": [message()] * 3,
        "shop.items": [message(pkNames=["id", "total"], type="UPDATE", old=[{"note": "was"}])] * 3,
    }
    for table, messages in of_table.items():
        many(format_, table, messages * PRACTICE)
    read, read_shape = canal_format.RowShape.read, canal_format.read_shape

    def counted_shape(value: bytes) -> object:
        nonlocal shapes
        shapes += 1
        return read_shape(value)

    def counted_read(*given: object) -> object:
        nonlocal texts
        texts += 1
        return read(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(canal_format, "read_shape", counted_shape)
    monkeypatch.setattr(canal_format.RowShape, "read", counted_read)
    for _ in range(4):
        for table, messages in of_table.items():
            assert len(many(format_, table, messages)) == 3
    assert (shapes, texts) == (0, 0)
    many(format_, "shop.others", [message()])  # its first: what it is like has to be read
    assert (shapes, texts) == (1, 1)


def test_what_tables_are_like_is_forgotten_with_the_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_MOST_COLUMNS", 40)
    format_ = Canal()
    for number in range(20):
        types = {"id": "int", f"c{number}": "int"}
        own = message(mysqlType=types, data=[{"id": "1", f"c{number}": "2"}])
        assert many(format_, f"shop.t{number}", [own] * PRACTICE)[-1].after == {"id": 1, f"c{number}": 2}
        assert len(format_._of_table) <= 8


def test_what_tables_are_like_is_bounded_though_all_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canal_format, "_MOST_TABLES", 10)
    format_ = Canal()
    for number in range(50):
        many(format_, f"shop.t{number}", [message()] * PRACTICE)
        assert len(format_._of_table) <= 10
