"""`transform` in commands: check, a sample, a replayed letter, a reloaded table, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from columns.ruling import SECRET, configured
from columns.test_columns_commands import canal, check, letter

from worker.configuration import Configuration, ConfigurationError, load
from worker.running.dead_letter_replay import Reader, ReplayFault

MODULE = """
from msgspec import structs
from binlane import Rejected

def clean(change):
    for row in (change.before, change.after):
        if row:
            row["state"] = row["state"].upper()
    return [] if "ssn" in (change.after or {}) else [change]

def strict(change):
    raise Rejected("not in this country")

def broken(change):
    return change.after["nowhere"]

def of_two(change, other):
    return change

async def later(change):
    return change

def whole(batch):
    return batch.changes

def reshape(change):
    for row in (change.before, change.after):
        if row:
            row["active"] = row.pop("state") == "active"
            row["id"] = str(row["id"])
    types = {**change.types, "active": "tinyint(1)", "id": "varchar(20)"}
    return structs.replace(change, types=types)

def nothing(change):
    return []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # A module has one name in a process, whichever folder it was found in.
    (tmp_path / f"{tmp_path.name}_functions.py".replace("-", "_")).write_text(MODULE)
    return tmp_path


def named(folder: Path, function: str) -> str:
    return f"{folder.name}_functions:{function}".replace("-", "_")


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (
            "cleam",
            "has no cleam; allowed: broken, clean, later, nothing, of_two, reshape, strict, whole; nearest: ",
        ),
        ("of_two", "of_two cannot be called with (change): missing a required argument: 'other'"),
        ("later", "later is async, and binlane would not await it; allowed: def later(change)"),
    ],
)
def test_check_loads_the_function(folder: Path, function: str, fault: str) -> None:
    (folder / "c.yaml").write_text(text := yaml.safe_dump(config(named(folder, function))))
    with pytest.raises(ConfigurationError) as found:
        load(folder / "c.yaml")
    assert f"tables[0].transform: found {named(folder, function)}" in str(found.value)
    assert fault in str(found.value)
    line = 1 + next(number for number, each in enumerate(text.splitlines()) if "transform" in each)
    assert f"c.yaml:{line}" in str(found.value)


@pytest.mark.parametrize(
    ("transform", "fault"),
    [
        (5, "transform: found 5"),
        ("", "transform.function"),
        ({"per_batch": True}, "transform.function: missing"),
        ({"function": "a:b", "per_batches": True}, "transform.per_batches: unknown key"),
        ({"function": "no_such_module:f"}, "there is no module no_such_module on PYTHONPATH or in"),
        ("not a path", "not an import path"),
    ],
)
def test_faults_of_the_key_are_told(tmp_path: Path, transform: Any, fault: str) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config(transform)))
    with pytest.raises(ConfigurationError) as found:
        load(tmp_path / "c.yaml")
    assert fault in str(found.value)


def test_a_sample_shows_rows_after_the_transform(folder: Path) -> None:
    rule = {"transform": named(folder, "clean"), "columns": {"mask": {"email": "redact"}, "exclude": ["ssn"]}}
    result = check(folder, rule, canal())
    assert result.return_value == 0, result.output
    assert '"state":"ACTIVE"' in result.stdout
    assert '"email":"***"' in result.stdout
    result = check(folder, {"transform": named(folder, "clean")}, canal())
    assert "removed by transform" in result.stdout


def test_a_review_is_shown_what_the_transform_makes_of_each_table(folder: Path) -> None:
    columns = {
        "exclude": ["ssn"],
        "rename": {"id": "number", "active": "is_active"},
        "mask": {"email": "redact"},
    }
    result = check(folder, {"transform": named(folder, "reshape"), "columns": columns}, canal())
    assert reviewed(result) >= {
        "id int number varchar(20) passes transform, renamed",
        "email varchar(90) email varchar(3) every value is ***",
        "ssn char(9) - left out",
        "state varchar(9) - removed by transform",
        "is_active tinyint(1) added by transform",
    }
    result = check(folder, {"transform": named(folder, "nothing")}, canal())
    assert "state varchar(9) state varchar(9) passes transform" in reviewed(result), "no row says otherwise"


def reviewed(result: Any) -> set[str]:
    assert result.return_value == 0, result.output
    return {" ".join(line.replace("│", " ").split()) for line in result.stdout.splitlines()}


@pytest.mark.parametrize(
    ("function", "told"),
    [("strict", "strict: not in this country"), ("broken", "broken: KeyError: 'nowhere'")],
)
def test_a_sample_shows_what_the_transform_refuses(folder: Path, function: str, told: str) -> None:
    result = check(folder, {"transform": named(folder, function)}, canal())
    assert result.return_value == 1
    assert f"refused by its rules: transform {named(folder, '')}{told}" in result.stdout


def test_columns_that_it_adds_may_be_in_the_rules(folder: Path) -> None:
    rule = {"transform": named(folder, "clean"), "columns": {"include": ["id", "state", "added"]}}
    result = check(folder, rule, canal())
    assert result.return_value == 0, result.output


@pytest.mark.parametrize("index", [None, 0])
def test_a_replayed_letter_goes_through_the_transform(folder: Path, index: int | None) -> None:
    rule = {"transform": named(folder, "clean"), "columns": {"exclude": ["ssn"], "mask": {"email": "redact"}}}
    found = letter(canal(), index)
    [change] = Reader(read(folder, rule)).changes(found).changes
    assert change.after == {"id": 7, "email": "***", "state": "ACTIVE"}
    assert (change.topic, change.offset) == ("dead@1", 1)
    rule = {"transform": named(folder, "clean")}
    assert Reader(read(folder, rule)).changes(found).skipped == "the table's rules leave it out"
    with pytest.raises(ReplayFault, match="not in this country"):
        Reader(read(folder, {"transform": named(folder, "strict")})).changes(found)


def read(folder: Path, rule: dict[str, Any]) -> Configuration:
    made = configured(rule)
    return made.read_from(folder / "c.yaml", made.secrets)


def config(transform: Any) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]},
        "tables": [{"match": "shop.users", "handlers": [{"type": "log"}], "transform": transform}],
        "masking": {"secret": SECRET},
    }
