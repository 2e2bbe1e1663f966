"""The section `json`: what it means, and what is said of one that cannot be used."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from captured import CapturedRecord
from configuration.shorthand import ANY_TABLE, Faults, Load, complete
from pydantic import ValidationError

from handlers import Change
from worker.configuration import Configuration, load
from worker.formats.own_json.format import Json
from worker.formats.registry import FormatChoice

FORMATS = (Path(__file__).parents[2] / "docs/formats.md").read_text()
NAMES = "database: =shop, table: t"


def test_a_layout_needs_two_names_and_has_defaults_for_the_rest(read: Load) -> None:
    layout = read(f"format: json\njson: {{{NAMES}}}").json_layout
    assert layout is not None
    assert (layout.database, layout.table, layout.after, layout.before) == ("=shop", "t", ".", None)
    assert (layout.operation, layout.key, layout.time, layout.time_unit) == (None, None, None, "ms")
    assert (layout.exclude, layout.columns, layout.tables, layout.transaction) == ([], {}, [], None)
    assert layout.operations["c"] == layout.operations["INSERT"] == "insert"


def test_words_of_operations_are_what_json_writes(read: Load) -> None:
    layout = read(
        f"json: {{{NAMES}, operations: {{true: delete, 1: update, null: insert, y: skip}}}}"
    ).json_layout
    assert layout is not None
    assert layout.operations == {"true": "delete", "1": "update", "null": "insert", "y": "skip"}


@pytest.mark.parametrize("key", ["id", "a.b", "$key", "[id, n]", "[]"])
def test_a_key_is_a_list_or_a_place(read: Load, key: str) -> None:
    layout = read(f"json: {{{NAMES}, key: {key}}}").json_layout
    assert layout is not None
    assert layout.key == {"[id, n]": ["id", "n"], "[]": []}.get(key, key)


def test_records_of_the_topic_are_read_by_the_layout(read: Load) -> None:
    configuration = read(f"format: {{'^cdc': canal, own: json}}\njson: {{{NAMES}}}")
    formats = FormatChoice(configuration.format, configuration.json_layout)
    assert isinstance(formats.of("own"), Json)
    assert formats.of("cdc.shop").name == "canal"


SOURCE = "a path such as source.table, =constant, $topic, $topic.1, $key.name or $header.name"
KEY = "a list of column names, or a path to an object or to such a list, such as source.key or $key"
TYPE = "a column type such as bigint unsigned, decimal(12,2), datetime(6) or json"
ROW = "a path in the value, such as payload.after, or . for the whole value"
OPERATIONS = "insert, update, delete, snapshot, skip"
MEANINGS = "a mapping of what the records say to insert, update, delete, snapshot or skip"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("format: json", ["json: missing; required with format: json"]),
        ("format: {a: canal, b: json}", ["json: missing; required with format: json"]),
        ("format: json\njson: null", ["json: missing; required with format: json"]),
        ("json: {table: t}", ["json.database: missing; required"]),
        (
            "json: yes",
            [
                'json: found "yes"; allowed: a mapping with the keys database, table, operation, operations, '
                "key, before, after, updates, exclude, time, time_unit, transaction, columns, tables; or null"
            ],
        ),
        ("json: {database: =shop, table: a..b}", [f'json.table: found "a..b"; allowed: {SOURCE}']),
        ("json: {database: =shop, table: $tpoic}", [f'json.table: found "$tpoic"; allowed: {SOURCE}']),
        ("json: {database: 5, table: t}", ["json.database: found 5; allowed: text"]),
        (
            f"json: {{{NAMES}, operatons: {{}}}}",
            [
                "json.operatons: unknown key; allowed: after, before, columns, database, exclude, key, "
                "operation, operations, table, tables, time, time_unit, transaction, updates; "
                "nearest: operations"
            ],
        ),
        (f"json: {{{NAMES}, operations: {{c: inser}}}}", [
            f'json.operations.c: found "inser"; allowed: {OPERATIONS}; nearest: insert'
        ]),
        (f"json: {{{NAMES}, operations: {{}}}}", [f"json.operations: found a mapping; allowed: {MEANINGS}"]),
        (f"json: {{{NAMES}, key: =id}}", [f'json.key: found "=id"; allowed: {KEY}']),
        (f"json: {{{NAMES}, key: [5]}}", [f"json.key: found a list; allowed: {KEY}"]),
        (f"json: {{{NAMES}, after: $key}}", [f'json.after: found "$key"; allowed: {ROW}']),
        (f"json: {{{NAMES}, before: =x}}", [f'json.before: found "=x"; allowed: {ROW}']),
        (f"json: {{{NAMES}, time_unit: mss}}", [
            'json.time_unit: found "mss"; allowed: s, ms, us, ns, iso8601; nearest: ms'
        ]),
        (f"json: {{{NAMES}, columns: {{a: decmal(5)}}}}", [
            f'json.columns.a: found "decmal(5)"; allowed: {TYPE}; nearest: decimal'
        ]),
        (f"json: {{{NAMES}, columns: [a]}}", [
            "json.columns: found a list; allowed: a mapping"
        ]),
        (f"json: {{{NAMES}, tables: [{{key: [id]}}]}}", ["json.tables[0].match: missing; required"]),
        (f"json: {{{NAMES}, tables: [{{match: orders}}]}}", [
            'json.tables[0].match: found "orders"; '
            "allowed: a glob on database.table, with both names; nearest: \"*.orders\""
        ]),
        (f"json: {{{NAMES}, tables: [{{match: a.b, columns: {{a: json5}}}}]}}", [
            f'json.tables[0].columns.a: found "json5"; allowed: {TYPE}; nearest: json'
        ]),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_used_says_what_can(faults: Faults, text: str, lines: list[str]) -> None:
    found = [line.split(": ", 1)[1] for line in faults(text)]
    assert found == lines


def test_a_program_is_told_likewise() -> None:
    kafka = {"bootstrap_servers": "localhost:1", "group_id": "g", "topics": ["t"]}
    with pytest.raises(ValidationError, match="json"):
        Configuration.model_validate({"kafka": kafka, "tables": ANY_TABLE, "format": "json"})
    layout = {"database": "=shop", "table": "$topic"}
    configuration = Configuration.model_validate(
        {"kafka": kafka, "tables": ANY_TABLE, "format": "json", "json": layout}
    )
    assert FormatChoice("json", configuration.json_layout).of("t").name == "json"


@pytest.mark.parametrize("section", ["Maxwell", "JSON of your own"])
def test_the_documentations_configuration_can_be_used(folder: Path, section: str) -> None:
    (example,) = FORMATS.split(f"\n## {section}\n")[1].split("\n## ")[0].split("```yaml\n")[1:]
    (folder / "shop.yaml").write_text(complete(example.split("```")[0]))
    configuration = load(folder / "shop.yaml", environment={})
    assert (
        FormatChoice(configuration.format, configuration.json_layout).of("maxwell").name
        == configuration.format
    )


def test_the_documentations_record_is_what_its_layout_reads(folder: Path) -> None:
    section = FORMATS.split("\n## JSON of your own\n")[1]
    (folder / "shop.yaml").write_text(complete(section.split("```yaml\n")[1].split("```")[0]))
    value = section.split("```json\n")[1].split("```")[0].encode()
    configuration = load(folder / "shop.yaml", environment={})
    format_ = FormatChoice(configuration.format, configuration.json_layout).of("events")
    changes: list[Change] = []
    format_.decode(CapturedRecord("events", 0, 0, 0, None, value, []), changes)
    (change,) = changes
    assert (change.op, change.key, change.source_time_ms) == ("update", {"id": 7}, 1795262400000)
    assert change.before == {"id": 7, "total": Decimal("9061.50")}
    created = datetime(2026, 11, 21, 11, tzinfo=UTC)
    assert change.after == {"id": 7, "total": Decimal("9070.00"), "created_at": created}
