"""Column rules in a file: what is taken, and every fault in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from configuration.shorthand import Faults

from worker.configuration import Configuration, load
from worker.configuration.doubts import doubts
from worker.configuration.shown import shown_settings
from worker.running.reloading import compare

SECRET = "correct horse battery"


def rule(keys: str, more: str = "") -> str:
    return f"tables:\n  - match: shop.users\n    handlers: [{{type: log}}]\n    {keys}\n{more}"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("columns: {exlude: [a]}", "columns.exlude: unknown key; allowed: add, cast, exclude, include, mask"),
        ("columns: {include: [a], exclude: [b]}", "include and exclude cannot be combined"),
        ("columns: {exclude: [a, A]}", "exclude: A is listed twice"),
        ("columns: {exclude: [a], mask: {A: redact}}", "mask names A, which exclude leaves out"),
        ("columns: {exclude: [İ], mask: {i: redact}}", "mask names i, which exclude leaves out"),
        ("columns: {include: [a], rename: {b: c}}", "rename names b, which include leaves out"),
        ("columns: {mask: {a: redact}, cast: {a: text}}", "mask and cast both name a"),
        ("columns: {rename: {a: x, b: X}}", "rename and add give: X is listed twice"),
        ("columns: {rename: {a: x}, add: {x: topic}}", "rename and add give: x is listed twice"),
        ("columns: {mask: {a: hsh}}", 'columns.mask.a: found "hsh"; allowed: hash, redact, null'),
        ("columns: {mask: {a: partial}}", "allowed: a partial mask with a visible part"),
        ("columns: {mask: {a: {partial: {first: 0}}}}", "allowed: a partial mask with a visible part"),
        ("columns: {mask: {a: {partial: {frist: 1}}}}", "allowed: hash, redact, null"),
        ("columns: {cast: {a: int}}", 'columns.cast.a: found "int"; allowed: text, integer'),
        ("columns: {cast: {a: 'decimal(2,3)'}}", "allowed: text, integer"),
        ("columns: {add: {a: nov()}}", 'columns.add.a: found "nov()"; allowed: now(), source_time'),
        ("columns: {add: {a: {value: [1]}}}", "allowed: {value: ...} with a text, a number, true or false"),
        ("filter: status = ", 'filter: found "status ="; allowed: a condition on the row; it cannot be read'),
        ("filter: SLEEP(9)", "allowed: a condition on the row; 'SLEEP(9)' is not allowed as a condition"),
        ("filter: 1", "filter: found 1; allowed: a condition on the row, such as"),
        ("filter:", "filter: found null; allowed: a condition on the row, such as"),
        ("columns: {include: }", "columns.include: found null; allowed: a list of columns"),
        (
            'columns: {mask: {"${COLUMN}": redact}}',
            "found ${...} in a key; allowed: variables in values only",
        ),
        ("deletes: keep", 'deletes: found "keep"; allowed: apply, mark, ignore'),
        (
            "columns: {mask: {a: hash}}",
            'shop.yaml:8: tables[0].columns.mask.a: found "hash": hash needs a secret: set masking.secret',
        ),
    ],
)
def test_a_fault_of_a_rule_is_told_in_one_line(faults: Faults, keys: str, line: str) -> None:
    (told,) = faults(rule(keys))
    assert line in told


def test_a_secret_that_is_too_short_is_a_fault_and_not_shown(faults: Faults) -> None:
    (told,) = faults(rule("filter: a = 1", "masking: {secret: hunter2}"))
    assert "masking.secret: found ***; allowed: a text of at least 16 bytes" in told
    (told,) = faults(rule("columns: {mask: {a: {hash: {secret: hunter2}}}}"))
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("deletes: ignore", "deletes is no longer an option of sql: set it beside handlers, for all of them"),
        ("deleted_column: x", "deleted_column is no longer an option of sql: set it beside handlers"),
        ("new_columns: ignore", "deletes: mark sets a column, but new_columns: ignore leaves it out"),
    ],
)
def test_what_sql_cannot_do_with_deletes_is_refused(option: str, fault: str, faults: Faults) -> None:
    text = rule("deletes: mark").replace("{type: log}", f"{{type: sql, url: 'sqlite:///x', {option}}}")
    (told,) = faults(text)
    assert fault in told


def loaded(folder: Path, keys: str, more: str = "", **environment: str) -> Configuration:
    head = "kafka: {bootstrap_servers: 'x:1', group_id: g, topics: [t]}\n"
    (folder / "shop.yaml").write_text(head + rule(keys, more))
    return load(folder / "shop.yaml", environment=environment)


def test_secrets_of_masks_are_never_shown(tmp_path: Path) -> None:
    keys = "columns: {mask: {a: hash, b: {hash: {secret: '${OWN}'}}}}"
    made = loaded(tmp_path, keys, "masking: {secret: '${ALL}'}", OWN=SECRET + "1", ALL=SECRET + "2")
    shown = repr(shown_settings(made)) + repr(made) + repr(made.tables[0].columns)
    assert SECRET not in made.secrets.redact(shown)
    assert SECRET not in repr(shown_settings(made))
    assert SECRET not in repr(made.tables[0].columns)


def test_a_reload_takes_over_rules_and_another_secret(tmp_path: Path) -> None:
    hashed = "columns: {mask: {a: hash}}"
    old = loaded(tmp_path, hashed, "masking: {secret: 0123456789abcdef}")
    new = loaded(tmp_path, hashed, "masking: {secret: fedcba9876543210}")
    assert compare(old, new).restart == ()
    assert compare(old, new).live == ("masking.secret",)
    assert not old.tables[0].is_as(new.tables[0])
    assert not old.tables[0].shows_as(new.tables[0])
    assert old.tables[0].is_as(loaded(tmp_path, hashed, "masking: {secret: 0123456789abcdef}").tables[0])
    other = loaded(tmp_path, "columns: {exclude: [a]}", "masking: {secret: 0123456789abcdef}")
    assert compare(old, other).live == ("tables",)


def test_check_tells_that_dead_letters_hold_what_is_kept_back(tmp_path: Path) -> None:
    letters = "dead_letter: {topic: dead}"
    assert any("dead letters contain" in told for told in doubts(loaded(tmp_path, "filter: a = 1", letters)))
    assert not list(doubts(loaded(tmp_path, "filter: a = 1", letters + "\non_undecodable: halt")))
    assert not list(doubts(loaded(tmp_path, "columns: {rename: {a: b}}", letters)))


def test_an_unquoted_null_is_a_mask(tmp_path: Path) -> None:
    made = loaded(tmp_path, "columns: {mask: {a: null, b: 'null'}}")
    assert yaml.safe_load("a: null") == {"a": None}
    assert {mask.kind for mask in made.tables[0].columns.mask.values()} == {"null"}
