"""`binlane check CONFIG --sample FILE` shows what becomes of given records."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from canal_packets import ddl, packet, row, rows
from captured import records
from typer.testing import CliRunner

from worker.cli import app
from worker.configuration import ConfigurationError

INSERT = {
    "data": [{"id": "7", "total": "9061.0"}],
    "database": "shop",
    "table": "orders",
    "type": "INSERT",
    "es": 1_700_000_000_000,
    "isDdl": False,
    "mysqlType": {"id": "bigint", "total": "decimal(10,2)"},
    "pkNames": ["id"],
}


@pytest.fixture
def check(tmp_path: Path) -> Any:
    def run(*lines: object, **sections: Any) -> Any:
        config = {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["cdc.shop"]},
            "tables": [{"match": "shop.*", "handlers": [{"type": "log", "name": "shown"}]}],
            **sections,
        }
        (tmp_path / "binlane.yaml").write_text(yaml.safe_dump(config))
        text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
        (tmp_path / "sample.jsonl").write_text(text)
        return CliRunner().invoke(
            app,
            ["check", str(tmp_path / "binlane.yaml"), "--sample", str(tmp_path / "sample.jsonl")],
            standalone_mode=False,
        )

    return run


def test_a_record_is_shown_with_its_place_lane_handlers_and_changes(check: Any) -> None:
    result = check(INSERT)
    assert result.return_value == 0, result.output
    assert "cdc.shop[0] offset 0: shop.orders → lane " in result.output
    assert " → shown" in result.output
    assert '"after":{"id":7,"total":"9061.00"}' in result.output
    assert "1 records: 1 decoded" in result.output


def test_a_line_may_hold_key_value_and_place(check: Any) -> None:
    as_bytes = {"base64": base64.b64encode(json.dumps(INSERT).encode()).decode()}
    result = check(
        {"key": "k", "value": INSERT, "topic": "other", "partition": 3, "offset": 42},
        {"key": None, "value": json.dumps(INSERT), "headers": [["a", "b"]]},
        {"value": as_bytes},
        {"topic": "cdc.shop", "partition": 1, "offset": 5, "ts": 1, "payload": json.dumps(INSERT)},
        {"value": None},
    )
    assert "other[3] offset 42: shop.orders" in result.output
    assert "cdc.shop[1] offset 5: shop.orders" in result.output
    assert "offset 4: skipped: tombstone" in result.output
    assert "5 records: 4 decoded, 1 skipped" in result.output


def test_a_table_that_no_rule_matches_is_told(check: Any) -> None:
    result = check({**INSERT, "database": "crm"}, INSERT)
    assert "crm.orders: no rule matches, skipped" in result.output
    assert result.return_value == 0
    assert "no record of the sample matches a rule" not in result.output


@pytest.mark.parametrize(
    ("match", "nearest"),
    [
        ("shpo.*", "nearest: tables[1].match: shpo.*"),
        ("Shop.Orders", "nearest: tables[1].match: Shop.Orders"),
        ("shop.order", "nearest: tables[1].match: shop.order"),
        ("/shop[.]ordrs/", "nearest: tables[1].match: /shop[.]ordrs/"),
        ("warehouse.bins", "tables are matched as database.table"),
    ],
)
def test_a_sample_of_which_no_record_meets_a_rule_fails_with_the_nearest_rule(
    check: Any, match: str, nearest: str
) -> None:
    rules = [{"match": each, "handlers": [{"type": "log"}]} for each in ("else.x", match)]
    result = check(INSERT, INSERT, {**INSERT, "database": "crm"}, {"value": None}, tables=rules)
    assert result.return_value == 1
    assert result.stderr == (
        f"no record of the sample matches a rule; its tables: shop.orders, crm.orders; {nearest}\n"
    )


def test_a_statement_about_users_is_shown_without_its_text(check: Any) -> None:
    grant = {
        **INSERT,
        "type": "QUERY",
        "isDdl": True,
        "data": None,
        "sql": "GRANT ALL ON *.* TO a IDENTIFIED BY 'x'",
    }
    result = check(grant)
    assert "shop.orders → lane " in result.output
    assert "GRANT" not in result.output


def test_a_sample_that_holds_no_table_at_all_is_no_fault(check: Any) -> None:
    assert check({"value": None}).return_value == 0


def test_an_undecodable_record_is_told_and_the_others_are_shown(check: Any) -> None:
    result = check({"nothing": "of it"}, INSERT)
    assert result.return_value == 1
    assert "offset 0: undecodable as canal: " in result.output
    assert "2 records: 1 decoded, 1 undecodable" in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "sample.jsonl:1: not a JSON object"),
        ('{"value": {"base64": "?"}}', "sample.jsonl:1: "),
        ('{"value": "x", "partition": "one"}', "sample.jsonl:1: partition: "),
    ],
)
def test_a_line_that_is_no_record_is_a_fault_with_its_place(check: Any, line: str, told: str) -> None:
    result = check(line)
    assert isinstance(result.exception, ConfigurationError)
    assert told in str(result.exception)
    assert str(result.exception).count("sample.jsonl") == 1


def test_records_that_a_tool_wrote_are_shown_as_they_were_captured(check: Any) -> None:
    captured = records("canal")
    result = check(
        *(
            {"topic": r.topic(), "offset": r.offset(), "value": (r.value() or b"").decode()}
            for r in captured[:200]
        )
    )
    assert result.return_value == 0
    assert "200 records: " in result.output


@pytest.mark.parametrize("headers", [5, "a", True, ["a"]])
def test_headers_that_are_none_are_told(check: Any, headers: Any) -> None:
    result = check({"value": INSERT, "headers": headers})
    assert "headers: " in str(result.exception or result.output)
    assert not isinstance(result.exception, TypeError)


def test_the_format_that_a_record_has_is_named_where_another_one_is_configured(check: Any) -> None:
    source = {
        "connector": "mysql",
        "db": "shop",
        "table": "orders",
        "ts_ms": 1,
        "file": "b.1",
        "pos": 4,
        "row": 0,
    }
    of_debezium = {"before": None, "after": {"id": 7}, "source": source, "op": "c", "ts_ms": 2}
    result = check(of_debezium, {"kind": "started"})
    assert result.return_value == 1
    named, other = [line for line in result.output.splitlines() if "undecodable as canal" in line]
    assert named.endswith("; it can be read as debezium: is this the right format?")
    assert "it can be read" not in other
    again = check(INSERT, format="debezium")
    assert "; it can be read as canal: is this the right format?" in again.output


def test_of_a_packet_of_several_tables_each_ones_changes_are_shown(check: Any) -> None:
    rows_of = [
        rows(table, row({"id": "7"}), database=database) for database, table in (("shop", "a"), ("x", "b"))
    ]
    value = packet(*rows_of, ddl("a", "ALTER TABLE a ADD x int"))
    result = check({"value": {"base64": base64.b64encode(value).decode()}})
    assert "offset 0: shop.a → lane " in result.output
    assert '"after":{"id":7}' in result.output
    assert "offset 0: x.b: no rule matches, skipped" in result.output
    assert "alone in its batch" in result.output
    assert "1 records: 1 decoded" in result.output


def test_what_a_filter_keeps_back_is_told_as_that(check: Any) -> None:
    rule = {"match": "shop.*", "handlers": [{"type": "log"}], "filter": "id > 7"}
    gone = {**INSERT, "type": "DELETE"}
    two = {**gone, "data": [{"id": "7", "total": "1"}, {"id": "8", "total": "1"}]}
    delete = {**gone, "data": [{"id": "9", "total": "1"}]}
    result = check(gone, two, tables=[rule])
    lines = [line.strip() for line in result.output.splitlines()]
    assert result.return_value == 0
    assert lines[lines.index("removed by filter") - 1].startswith("cdc.shop[0] offset 0: shop.orders → lane")
    assert "1 of 2 changes removed by filter" in lines
    ignored = check(
        delete, tables=[{**{k: v for k, v in rule.items() if k != "filter"}, "deletes": "ignore"}]
    )
    assert "    removed by deletes: ignore" in ignored.output
    assert "removed by" not in check(INSERT).output


SOURCE = {
    "connector": "mysql",
    "db": "shop",
    "table": "orders",
    "ts_ms": 1,
    "file": "b.1",
    "pos": 4,
    "row": 0,
}
OF_DEBEZIUM = {
    "before": None,
    "after": {"id": 7, "balance": "BBo=", "born": 7305},
    "source": SOURCE,
    "op": "c",
    "ts_ms": 2,
}


def test_records_that_tell_neither_types_nor_a_key_are_noted_once_for_each_table(check: Any) -> None:
    result = check(OF_DEBEZIUM, OF_DEBEZIUM, format="debezium")
    notes = [line for line in result.output.splitlines() if line.startswith("Note: shop.orders: ")]
    types, key = notes
    assert types.startswith("Note: shop.orders: the records have no types: decimals stay base64 text")
    assert types.endswith('docs/formats.md, "What tells the types"')
    assert key.startswith(
        "Note: shop.orders: the records have no key, so rows are identified by all their columns together. "
    )
    assert result.return_value == 0
    keyed = {"key": {"id": 7}, "value": OF_DEBEZIUM}
    assert "have no key" not in check(keyed, format="debezium").output
    with_ddl = {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["cdc.shop"], "ddl_topics": ["my"]}
    assert (
        "put records of kafka.ddl_topics (my) before"
        in check(keyed, format="debezium", kafka=with_ddl).output
    )


def test_records_that_tell_types_and_key_are_not_noted(check: Any) -> None:
    assert "the records" not in check(INSERT).output
