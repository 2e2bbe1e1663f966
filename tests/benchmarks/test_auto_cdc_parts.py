"""The parts of the benchmarks beside AUTO CDC: the cases, the model, the files, the watch, the lines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Message

from benchmarks.spark.cases import CASES, Difference, arrivals, compare, model
from benchmarks.spark.debezium import RECORDS, debezium
from benchmarks.spark.feed import TableFilesTarget
from benchmarks.spark.lines import code_lines, user_lines
from benchmarks.spark.load import Load, Record
from benchmarks.spark.watch import CHECKPOINTS, Watch
from handlers import Change
from worker.formats import registry
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Format
from worker.formats.interface import Record as FormatRecord


def decoded(read: Format, value: bytes, key: bytes | None) -> list[Change]:
    changes: list[Change] = []
    read.decode(
        cast(FormatRecord, Message(topic="cdc", partition=0, offset=0, key=key, value=value)), changes
    )
    return changes


BY_TABLE = {case.table: case for case in CASES}
"""The cases by their tables."""


def rows_in_order_of_arrival(table: str) -> dict[str, dict[str, Any]]:
    """A replica that believes the order of the records, by reading them alone."""
    rows: dict[str, dict[str, Any]] = {}
    for arrival in [*arrivals(0), *arrivals(1)]:
        message = json.loads(arrival.record.value)
        if message["table"] != table or message["isDdl"]:
            continue
        [row] = message["data"]
        if message["type"] == "DELETE":
            rows.pop(row["id"], None)
        else:
            old = (message["old"] or [{}])[0]
            rows.pop(old.get("id", row["id"]), None)
            rows[row["id"]] = row
    return rows


@pytest.mark.parametrize("table", [name for name in BY_TABLE if name != "late"])
def test_the_order_of_arrival_is_right_in_every_case_but_the_late_one(table: str) -> None:
    found = [
        {**row, "id": int(row["id"]), "qty": int(row["qty"])}
        for row in rows_in_order_of_arrival(table).values()
    ]
    assert compare(model(BY_TABLE[table]), found) == Difference(0, 0, 0)


def test_late_records_make_forty_rows_wrong_and_bring_ten_back() -> None:
    found = [
        {**row, "id": int(row["id"]), "qty": int(row["qty"])}
        for row in rows_in_order_of_arrival("late").values()
    ]
    assert str(compare(model(BY_TABLE["late"]), found)) == "40 wrong, 10 extra"


def test_wrong_missing_and_extra_rows_are_told_apart() -> None:
    expected = {1: {"id": 1, "name": "a"}, 2: {"id": 2, "name": "b"}, 3: {"id": 3, "extra": "x"}}
    found = [{"id": 1, "name": "other"}, {"id": 3}, {"id": 3}, {"id": 4}]
    assert compare(expected, found) == Difference(wrong=2, missing=1, extra=2)


def test_each_round_of_each_table_ends_with_its_newest_record() -> None:
    for round_ in (0, 1):
        last: dict[int, int] = {}
        greatest: dict[int, int] = {}
        for arrival in arrivals(round_):
            table = arrival.record.table
            last[table] = arrival.sequence
            greatest[table] = max(greatest.get(table, 0), arrival.sequence)
        assert last == greatest
        assert len(last) == len(CASES)


def test_files_of_a_table_are_named_by_their_last_change(tmp_path: Path) -> None:
    target = TableFilesTarget(tmp_path / "files", ["t0", "t1"], at_least=2)
    target.write([Record(0, 0, b"a"), Record(1, 1, b"b"), Record(2, 0, b"c")])
    assert [path.name for path in sorted((tmp_path / "files").glob("*/*.json"))] == ["000000000002.json"]
    target.flush()
    files = sorted((tmp_path / "files").glob("*/*.json"))
    assert [(path.parent.name, path.name) for path in files] == [
        ("t0", "000000000002.json"),
        ("t1", "000000000001.json"),
    ]
    assert files[0].read_bytes() == b"a\nc\n"


def test_a_checkpoint_tells_the_last_change_of_each_batch_also_from_a_compacted_log(tmp_path: Path) -> None:
    log, commits = tmp_path / "sources" / "0", tmp_path / "commits"
    log.mkdir(parents=True)
    commits.mkdir()
    lines = [
        f'{{"path":"file:///files/{12 + batch:012d}.json","timestamp":1,"batchId":{batch}}}'
        for batch in (0, 1)
    ]
    (log / "0").write_text("v1\n" + lines[0])
    (log / "1.compact").write_text("v1\n" + "\n".join(lines))
    watch = Watch({0: tmp_path}, CHECKPOINTS)
    for batch in (0, 1):
        assert watch.missing([12 + batch]) == 1
        (commits / str(batch)).write_text("v1\n{}")
        deadline = time.monotonic() + 10
        while watch.missing([12 + batch]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    watch.close()
    assert watch.merged[0].upto == [12, 13]


def test_lines_of_code_leave_out_comments_docstrings_and_blank_lines() -> None:
    text = (
        '"""About."""\n\nx = 1  # one\n# two\ndef f():\n    """Do."""\n    return """a\n\nb"""\n\n\ny = 2\n'
    )
    assert code_lines(text) == 6
    assert code_lines(text, ("f",)) == 4
    assert 10 < user_lines()["binlane"] < user_lines()["AUTO CDC"] < user_lines()["Structured Streaming"]


def test_debeziums_records_of_the_load_are_the_same_changes_as_canals() -> None:
    canal = registry.get("canal")
    read = registry.get("debezium", debezium=DebeziumSettings.model_validate(RECORDS["debezium"]))
    for record in Load(3).take(400, 1_763_000_000_000):
        key, value = debezium(record)
        [ours] = decoded(canal, record.value, None)
        [theirs] = decoded(read, value, key)
        assert (theirs.op, theirs.after, theirs.key_columns) == (ours.op, ours.after, ours.key_columns)
        assert (theirs.after or theirs.before) == (ours.after or ours.before)
        assert read.route(value).table == canal.route(record.value).table
