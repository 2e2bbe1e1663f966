"""Each format's example reads its sample: as `check --sample` shows it, and as the worker handles it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from examples.example_runs import EXAMPLES, ExampleRun, RunExample, changes_of, configurations, sample_of
from typer.testing import CliRunner

from worker.cli import app

FORMATS = configurations("formats")
REASONS = {
    "formats/debezium": {"tombstone", "transaction"},
    "formats/debezium-unwrapped": {"tombstone"},
    "formats/debezium-without-schemas": {"tombstone", "transaction"},
    "formats/dts": {"heartbeat", "transaction"},
    "formats/json": {"operation"},
    "formats/maxwell": {"bootstrap"},
}
"""Why records of a sample are skipped; of the others, all are decoded."""

ORDER = {
    "id": 5004,
    "customer_id": 7,
    "status": "paid",
    "total": "1900.40",
    "note": None,
    "placed_at": "2025-05-17T22:12:09.458703",
    "meta": '{"n":5004,"src":"web"}',
}
CUSTOMER = {
    "id": 1001,
    "email": "u1@example.com",
    "name": "이영희",
    "balance": "9617.39",
    "vip": 0,
    "born": None,
    "updated_at": "2025-01-05T15:06:53.060000+00:00",
}
CONTACT = {"id": 22, "name": "after add", "age": 33, "phone": "2", "extra": None}
TAGS = {"RED": 1, "grün": 22, "new": 6}


def test_there_is_an_example_of_each_format() -> None:
    assert {"canal", "debezium", "maxwell", "dts", "json"} <= {name.partition("/")[2] for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_check_shows_every_record_of_the_sample_decoded_or_skipped_for_a_reason(name: str) -> None:
    sample = sample_of(name)

    arguments = ["check", str(EXAMPLES / f"{name}.yaml"), "--sample", str(sample)]

    found = CliRunner().invoke(app, arguments, standalone_mode=False)

    assert found.return_value == 0, found.output
    assert set(re.findall(r"offset \d+: skipped: (\w+)", found.output)) == REASONS.get(name, set())
    records = len(sample.read_text().splitlines())
    told = re.search(r"(?m)^(\d+) records: (\d+) decoded(?:, (\d+) skipped)?$", found.output)
    assert told is not None, found.output[-500:]
    assert 10 <= records <= 43
    assert (int(told[1]), int(told[2]) + int(told[3] or 0)) == (records, records)


@pytest.mark.parametrize("name", FORMATS)
def test_a_sample_holds_every_kind_of_change(name: str) -> None:
    changes = [change for _, change in changes_of(name)]
    ops = {change.op for change in changes}
    assert ops >= {"insert", "update", "delete"}
    if name != "formats/json":
        assert "ddl" in ops
    moved = [change.key for change in changes if change.op == "delete"]
    assert {"tag": "red"} in moved, "a key that an update changed"


@pytest.mark.parametrize("name", FORMATS)
def test_the_worker_reads_the_same_rows_from_every_tool(name: str, run_example: RunExample) -> None:
    run = run_example(name)
    run.stop()

    changes = written(run) if name == "formats/json" else logged(run)
    assert len(changes) == len(changes_of(name))
    rows = final_rows(changes)
    # DTS sends decimals without the zeros at their end.
    assert rows["shop.orders"][5004] == (ORDER | {"total": "1900.4"} if name == "formats/dts" else ORDER)
    assert rows["shop.customers"][1001] == CUSTOMER
    assert 1 not in rows["shop.customers"], "its key became 1001"
    tags = {tag: row["n"] for tag, row in rows["crm.tags"].items() if tag in TAGS}
    assert tags == TAGS
    assert "red" not in rows["crm.tags"]
    if name != "formats/json":
        assert rows["crm.contacts"][22] == CONTACT
        contacts = [change for change in changes if change["table"] == "crm.contacts"]
        altered = next(
            place for place, each in enumerate(contacts) if "ADD COLUMN" in (each.get("sql") or "")
        )
        assert [each["key"] for each in contacts[altered - 1 : altered + 2]] == [{"id": 21}, None, {"id": 22}]


def logged(run: ExampleRun) -> list[dict[str, Any]]:
    return run.worker.logged("change")


def written(run: ExampleRun) -> list[dict[str, Any]]:
    lines = [
        json.loads(line)
        for file in sorted(run.folder.glob("output/*/*/*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [{**line, "table": f"{line['database']}.{line['table']}"} for line in lines]


def final_rows(changes: list[dict[str, Any]]) -> dict[str, dict[Any, dict[str, Any]]]:
    """{table: {key: row}} after all changes."""
    rows: dict[str, dict[Any, dict[str, Any]]] = {}
    for change in changes:
        if change["key"] is None:
            continue
        [key] = change["key"].values()
        table = rows.setdefault(change["table"], {})
        if change["op"] == "delete":
            del table[key]
        else:
            table[key] = change["after"]
    return rows
