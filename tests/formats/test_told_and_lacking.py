"""What each format says a change lacks, whether its old row is whole, and which rows it moves."""

from __future__ import annotations

from typing import Any

import json_messages
import maxwell_messages
import pytest
from canal_messages import message
from captured import CapturedRecord
from debezium_columns import POSTGRESQL
from debezium_messages import change_of, connect, envelope, record, with_schema

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings

UNAVAILABLE = "__debezium_unavailable_value"
AT = {**POSTGRESQL, "schema": "public"}
KEY = {"id": 7}


def updated(row: dict[str, Any], old: dict[str, Any] | None = None, **settings: Any) -> Change:
    return change_of(
        record(envelope("u", before=old, after=row, at=AT), KEY), Debezium(DebeziumSettings(**settings))
    )


def test_types_of_some_columns_do_not_make_a_row_whole() -> None:
    change = updated({**KEY, "n": 1, "doc": UNAVAILABLE}, columns={"public.*": {"n": "int"}})
    assert (change.after, change.lacks, change.is_whole) == ({**KEY, "n": 1}, {"doc"}, False)
    assert updated({**KEY, "n": 1, "doc": None}, columns={"public.*": {"n": "int"}}).is_whole


@pytest.mark.parametrize("old", [None, {**KEY, "doc": "large"}, {**KEY, "doc": None}])
def test_what_a_change_lacks_is_a_frozen_set(old: Any) -> None:
    """Handlers keep it in sets; the difference of a frozen set and a dict's keys is none."""
    change = updated({**KEY, "doc": UNAVAILABLE}, old)
    assert type(change.lacks) is frozenset


def test_the_old_row_tells_what_did_not_change() -> None:
    change = updated({**KEY, "n": 2, "doc": UNAVAILABLE}, {**KEY, "n": 1, "doc": "large"})
    assert (change.after, change.is_whole) == ({**KEY, "n": 2, "doc": "large"}, True)
    assert change.before_is_whole


def test_a_null_of_the_old_row_is_no_value() -> None:
    change = updated({**KEY, "n": 2, "doc": UNAVAILABLE}, {**KEY, "n": None, "doc": None})
    assert (change.after, change.lacks) == ({**KEY, "n": 2}, {"doc"})
    assert not change.before_is_whole


def test_null_may_stand_for_what_did_not_change() -> None:
    change = updated({**KEY, "n": None}, keep_if_null={"public.*": ["n"]})
    assert (change.after, change.lacks) == (KEY, {"n"})


def test_an_update_of_json_is_whole_if_the_configuration_says_so() -> None:
    update = {"old": {"id": 1, "a": "x"}, "new": {"id": 1, "b": "y"}}
    layout = {"before": "old", "after": "new", "key": ["id"], "columns": {"b": "text"}}
    [change] = json_messages.decode(json_messages.record(update), **layout)
    assert (change.after, change.lacks) == ({"id": 1, "a": "x", "b": "y"}, None)
    assert not change.before_is_whole
    [change] = json_messages.decode(json_messages.record(update), updates="whole", **layout)
    assert (change.before, change.after) == (update["old"], update["new"])
    assert change.is_whole


@pytest.mark.parametrize("updates", ["partial", "whole"])
def test_both_halves_of_a_moved_row_say_so(updates: str) -> None:
    one: CapturedRecord = json_messages.record({"old": {"id": 1}, "new": {"id": 2, "b": "y"}})
    layout = {"before": "old", "after": "new", "key": ["id"], "updates": updates}
    gone, made = json_messages.decode(one, **layout)
    assert (gone.op, gone.moves_key, gone.before_is_whole) == ("delete", True, False)
    assert (made.op, made.moves_key, made.is_whole) == ("insert", True, updates == "whole")


@pytest.mark.parametrize("updates", ["partial", "whole"])
def test_an_old_row_is_whole_only_if_the_new_one_is_known_to_be(updates: str) -> None:
    one: CapturedRecord = json_messages.record({"old": {"id": 1, "b": "x"}, "new": {"id": 2, "b": "y"}})
    gone, _ = json_messages.decode(one, before="old", after="new", key=["id"], updates=updates)
    assert gone.before_is_whole is (updates == "whole")


@pytest.mark.parametrize("filler", [None, "", 0, "1970-01-01T00:00:00Z"])
def test_what_a_connector_fills_in_is_no_old_value(filler: Any) -> None:
    """REPLICA IDENTITY USING INDEX: of the old row the log holds the index's columns alone."""
    change = updated({**KEY, "code": "b", "doc": UNAVAILABLE}, {"id": 0, "code": "a", "doc": filler})
    assert (change.after, change.lacks) == ({**KEY, "code": "b"}, {"doc"})
    assert not change.before_is_whole


@pytest.mark.parametrize("after", [{**KEY, "note": "b", "doc": "AA=="}, {**KEY, "note": "b"}])
def test_an_old_row_of_mysql_without_its_large_values_is_not_whole(after: Any) -> None:
    columns = {"id": connect("int32"), "note": connect("string"), "doc": connect("bytes")}
    change = change_of(
        record(with_schema(envelope("u", before={**KEY, "note": "a"}, after=after), columns), KEY)
    )
    assert not change.before_is_whole


@pytest.mark.parametrize("more", [{}, {"untyped": "x"}])
@pytest.mark.parametrize("old", [None, [{"total": "1.0"}]])
def test_an_update_of_canal_lacks_the_columns_of_its_types_that_it_does_not_have(
    old: Any, more: dict[str, str]
) -> None:
    changes: list[Change] = []
    Canal().decode(message(type="UPDATE", data=[{"id": "7", "total": "2.0", **more}], old=old), changes)
    assert [change.lacks for change in changes] == [{"note"}]


@pytest.mark.parametrize("types", [{"id": "bigint", "total": "decimal(10,2)", "note": "text"}, None])
def test_a_delete_tells_whether_its_row_may_lack_columns(types: Any) -> None:
    told = {"id": 7, "total": 1}
    json = json_messages.record({"op": "delete", "row": told})
    layout = {"operation": "op", "after": "row", "key": ["id"]}
    [whole] = json_messages.decode(json, **layout, updates="whole")
    assert (whole.lacks, whole.before_is_whole) == (frozenset(), True)
    [partial] = json_messages.decode(json, **layout)
    assert (partial.lacks, partial.before_is_whole) == (None, True)
    [one] = maxwell_messages.decode(maxwell_messages.row(type="delete", data=told))
    assert (one.lacks, one.before_is_whole) == (None, True)
    changes: list[Change] = []
    row = {"id": "7", "total": "1.00"}
    Canal().decode(message(type="DELETE", data=[row], mysqlType=types), changes)
    assert [change.before_is_whole for change in changes] == [types is None]


def test_the_old_half_of_a_moved_row_is_as_whole_as_the_row() -> None:
    changes: list[Change] = []
    Canal().decode(message(type="UPDATE", data=[{"id": "8", "total": "1"}], old=[{"id": "7"}]), changes)
    assert [change.before_is_whole for change in changes if change.op == "delete"] == [False]
