"""Column rules in commands: what a review is shown, what a replayed letter becomes, what verify compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from confluent_kafka import Message
from ruling import SECRET, configured, hashed
from typer.testing import CliRunner

from offsets.types import TopicPartition
from worker.cli import app
from worker.column_rules.plan import ColumnPlans
from worker.configuration import load
from worker.dead_letters.topic import DeadLetter
from worker.reloading.source_changes import ChangesOf, Unfollowable
from worker.running.dead_letter_replay import Reader, ReplayFault
from worker.verifying.comparing import Leaving

ROW = {"id": "7", "email": "ada@x", "ssn": "hidden-1", "state": "active"}
TYPES = {"id": "int", "email": "varchar(90)", "ssn": "char(9)", "state": "varchar(9)"}


def canal(**more: Any) -> str:
    fields = {
        "database": "shop",
        "table": "users",
        "type": "INSERT",
        "isDdl": False,
        "es": 1,
        "pkNames": ["id"],
    }
    return json.dumps({**fields, "data": [ROW], "mysqlType": TYPES, **more})


def check(folder: Path, rule: dict[str, Any], *lines: str) -> Any:
    config = {
        "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]},
        "tables": [{"match": "shop.users", "handlers": [{"type": "log"}], **rule}],
        "masking": {"secret": SECRET},
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    (folder / "s.jsonl").write_text("\n".join(lines))
    arguments = ["check", str(folder / "c.yaml"), "--sample", str(folder / "s.jsonl")]
    return CliRunner().invoke(app, arguments, standalone_mode=False)


def test_a_review_is_shown_what_leaves_of_each_table(tmp_path: Path) -> None:
    columns = {
        "exclude": ["SSN"],
        "mask": {"email": "hash", "state": {"partial": {"first": 1}}},
        "rename": {"id": "number"},
        "add": {"origin": "topic"},
    }
    result = check(tmp_path, {"columns": columns, "filter": "state = 'active'", "deletes": "mark"}, canal())
    assert result.return_value == 0, result.output
    lines = [" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()]
    for line in (
        "ssn char(9) - left out",
        "email varchar(90) email varchar(64) hashed (HMAC-SHA-256, keyed)",
        "state varchar(9) state varchar(4) the first 1 visible; *** for the rest",
        "id int number int renamed",
        "origin varchar(255) added",
        "deleted_at timestamp(6) added: time of the delete",
        "Only rows with: state = 'active'",
        "Deletes: mark",
    ):
        assert line in lines
    assert "hidden-1" not in result.stdout
    assert hashed("ada@x") in result.stdout.replace("\n", "")


def test_a_name_that_no_table_of_the_sample_has_is_told_with_the_nearest(tmp_path: Path) -> None:
    result = check(tmp_path, {"columns": {"exclude": ["emial"]}, "filter": "stat = 'x'"}, canal())
    assert result.return_value == 1
    assert "tables[0].columns: no table of the sample has a column emial; nearest: email" in result.stderr
    assert "tables[0].filter: no table of the sample has a column stat; nearest: state" in result.stderr


def test_a_record_that_the_rules_refuse_is_told(tmp_path: Path) -> None:
    result = check(tmp_path, {"columns": {"exclude": ["id"]}}, canal())
    assert result.return_value == 1
    assert "refused by its rules: id is a primary key column" in result.stdout


def letter(value: str, index: int | None) -> DeadLetter:
    return DeadLetter(
        place=TopicPartition("dead", 0),
        offset=1,
        topic="t",
        partition=0,
        source_offset=7,
        index=index,
        table="shop.users",
        handler=None,
        error="E",
        attempts=1,
        time=None,
        worker="w",
        key=None,
        value=value.encode(),
        headers=(),
        timestamp=(1, 0),
    )


@pytest.mark.parametrize("index", [None, 0])
def test_a_replayed_letter_goes_through_the_rules(index: int | None) -> None:
    reader = Reader(configured({"columns": {"exclude": ["ssn"]}, "filter": "state <> 'gone'"}))
    [change] = reader.changes(letter(canal(), index=index)).changes
    assert change.after is not None
    assert "ssn" not in change.after
    gone = canal(type="DELETE", data=[{**ROW, "state": "gone"}])
    assert reader.changes(letter(gone, index=index)).skipped == "the table's rules leave it out"
    with pytest.raises(ReplayFault, match="column rules: ssn is a primary key column"):
        Reader(configured({"columns": {"exclude": ["ssn"]}})).changes(letter(canal(pkNames=["ssn"]), index))


def test_verify_looks_for_columns_under_their_new_names_and_leaves_changed_ones_out() -> None:
    rule = configured(
        {
            "columns": {
                "exclude": ["ssn"],
                "rename": {"id": "number"},
                "mask": {"email": "hash"},
                "add": {"origin": "topic"},
            }
        }
    ).tables[0]
    assert rule.row_rules is not None
    plans: ColumnPlans = rule.row_rules.plans
    found = Leaving.of(plans, ["id", "email", "ssn", "state"])
    assert found.names == {"id": "number", "email": "email", "state": "state"}
    assert found.source_names(("number",)) == ("id",)
    assert found.changed == ["email"]
    there = {"ssn": 1, "origin": 2, "other": 3}
    assert found.notes(there) == [
        "the replica still has columns that the rules leave out: ssn",
        "masked or cast by the rules, and not compared: email",
    ]
    assert there == {"other": 3}


def test_the_file_of_a_review_is_a_configuration_like_any_other(tmp_path: Path) -> None:
    check(tmp_path, {"columns": {"exclude": ["ssn"]}}, canal())
    assert load(tmp_path / "c.yaml").tables[0].row_rules is not None


def test_no_command_quotes_values_of_a_record_under_rules() -> None:
    bad = canal(data=[{**ROW, "id": "hidden-9"}])
    plain, rules = configured({}), configured({"columns": {"exclude": ["ssn"]}})
    for configuration, quotes in ((plain, True), (rules, False)):
        with pytest.raises(ReplayFault, match="undecodable record: ") as told:
            Reader(configuration).changes(letter(bad, None))
        assert ("hidden-9" in str(told.value)) is quotes
        changes = ChangesOf(configuration, configuration.tables[0], "shop", "users")
        with pytest.raises(Unfollowable, match="undecodable record at ") as refused:
            list(changes.of(cast(Any, Message)("t", 0, 7, value=bad.encode())))
        assert ("hidden-9" in str(refused.value)) is quotes
