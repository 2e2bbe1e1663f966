"""A commit without Spark replaces the files that have its keys, and leaves the others alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import Table, shape

from handlers.spark.delta import few_files
from handlers.spark.delta.few_files import TableFile, _is_certain, _may_have
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

ORDERS = shape(id=pa.int64(), name=pa.string())
KEYS: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int32(): lambda number: number - 50,
    pa.string(): lambda number: f"{'x' * (number % 50)}{number}",
    pa.date32(): lambda number: date(1, 1, 1) + timedelta(days=30_000 * number),
    pa.timestamp("us", tz="UTC"): lambda number: (
        datetime(1850, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    ),
    pa.decimal128(20, 2): lambda number: Decimal(2**53 + number),
    pa.binary(): lambda number: bytes([number]),
    pa.bool_(): lambda number: number % 2 == 0,
}


@pytest.fixture
def each_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is small: new rows become a file, which is touched if a key of it changes."""
    monkeypatch.setattr(few_files, "_TAIL_ROWS", 0)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(None, tmp_path / "t", merge=MergeOptions(engine="auto"))


def bring(table: Table) -> bool:
    newest = table.log.segments[-1]
    note = table.note(newest.number, newest.number)
    what = Bringing(table.ref, [newest], table.shape, note, newest.number - 1)
    return WithoutSpark(table.options, LocalFiles()).apply(what) is not None


def files(table: Table) -> set[str]:
    """Those of the newest version."""
    found: set[str] = set()
    for commit in sorted(Path(table.path, "_delta_log").glob("?" * 20 + ".json")):
        for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines()):
            found -= {action.get("remove", {}).get("path", "")}
            found |= {action["add"]["path"]} if "add" in action else set()
    return found


@pytest.mark.usefixtures("each_apart")
def test_only_files_with_changed_keys_are_replaced(table: Table) -> None:
    for first in (0, 100, 200):
        table.put(ORDERS, *({"id": number, "name": "a"} for number in range(first, first + 100, 2)))
        assert bring(table)
    before = files(table)
    assert len(before) == 3
    table.put(
        ORDERS, {"id": 102, "name": "b"}, {"id": 104, "op": "delete"}, {"id": 300}, {"id": 1, "op": "delete"}
    )
    assert bring(table)
    # The key 1 is within the first file's bounds, but not in the file.
    assert len(before - files(table)) == 1
    assert len(files(table)) == 4
    rows = dict(table.rows())
    assert (len(rows), rows[102], rows[300], 104 in rows) == (150, "b", None, False)


@pytest.mark.usefixtures("each_apart")
@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_a_key_of_any_type_is_found_in_whichever_file_it_is(table: Table, kind: pa.DataType) -> None:
    of, drawn, model = shape(("k", "n"), k=kind, n=pa.int64(), v=pa.int64()), random.Random(1), {}
    for turn in range(12):
        changes: dict[tuple[Any, int], dict[str, Any]] = {}
        for _ in range(drawn.randrange(1, 30)):
            number = drawn.randrange(100)
            key = {"k": KEYS[kind](number), "n": number % 3}
            gone = turn > 2 and not drawn.randrange(4)
            changes[key["k"], key["n"]] = {**key, **({"op": "delete"} if gone else {"v": turn})}
        for own, change in changes.items():
            model.pop(own, None)
            if "op" not in change:
                model[own] = turn
        table.put(of, *changes.values())
        assert bring(table)
    assert sorted(table.rows(), key=repr) == sorted(((*key, v) for key, v in model.items()), key=repr)
    assert len(files(table)) > 1


def test_small_files_become_one(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as apart:
        apart.setattr(few_files, "_TAIL_ROWS", 0)
        for number in range(4):
            table.put(ORDERS, {"id": number})
            assert bring(table)
    assert len(files(table)) == 4
    table.put(ORDERS, {"id": 9})
    assert bring(table)
    assert len(files(table)) == 1
    assert [key for key, _ in table.rows()] == [0, 1, 2, 3, 9]


@pytest.mark.usefixtures("each_apart")
@pytest.mark.parametrize("limit", ["_MOST_BYTES", "_MOST_KEYS"])
def test_more_than_few_files_are_for_spark(table: Table, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    table.put(ORDERS, {"id": 1}, {"id": 5})
    assert bring(table)
    table.put(ORDERS, {"id": 1})
    monkeypatch.setattr(few_files, limit, 1)
    assert not bring(table)
    assert not table.commits
    monkeypatch.undo()
    assert bring(table)


@pytest.mark.usefixtures("each_apart")
def test_a_file_whose_bounds_are_null_may_have_any_key(table: Table) -> None:
    table.put(ORDERS, {"id": 1, "name": "a"}, {"id": 2, "name": "a"})
    assert bring(table)
    commit = Path(table.path, "_delta_log", f"{0:020d}.json")
    *others, action = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
    action["add"]["stats"] = json.dumps({"numRecords": 2, "minValues": None, "maxValues": None})
    commit.write_text("".join(f"{json.dumps(each)}\n" for each in (*others, action)), encoding="utf-8")
    table.put(ORDERS, {"id": 2, "name": "b"})
    assert bring(table)
    assert table.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("bounds", "changed", "expected"),
    [
        ((1, 9), (9, 20), True),
        ((1, 9), (10, 20), False),
        ((1, 9), (-5, 0), False),
        (("a", "b"), ("b", "c"), True),
        (("a", "b"), ("c", "d"), False),
        ((1, 9), (None, None), True),
    ],
)
def test_a_file_is_left_out_by_certain_bounds_alone(bounds: Any, changed: Any, expected: bool) -> None:
    assert _may_have(TableFile("f", 1, 1, {"id": bounds}), {"id": changed}) is expected
    assert _may_have(TableFile("f", 1, 1, {}), {"id": changed})


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (1, True),
        ("x" * 31, True),
        ("x" * 32, False),
        ("\U0001f600" * 16 + "\ufffd", False),  # of a former Delta: below the text that it was cut from
        (datetime(2026, 1, 1), False),
        (None, False),
    ],
)
def test_bounds_that_some_writer_cuts_count_for_nothing(bound: Any, expected: bool) -> None:
    assert _is_certain(bound) is expected
