"""Every snippet has a check that knows its language; what no test can run says why."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from documentation.blocks import Block, blocks, each

from handlers.spark.runtime import versions
from handlers.sql import marks

CHECKED = {
    "": "test_snippets_shell.py",
    "sh": "test_snippets_shell.py",
    "yaml": "test_snippets_yaml.py",
    "python": "test_snippets_python.py",
    "json": "below",
    "sql": "below",
}
NOT_RUN = {
    "text": "is no command: a drawing, or what a command prints",
    "console": "is what a program shows at its prompt; lines of binlane are checked with the other commands",
    "properties": "is for Debezium and Maxwell; tests/data has what these wrote",
}


def test_every_language_has_a_check_or_a_reason() -> None:
    found = {block.language for block in blocks()}
    assert found == {*CHECKED, *NOT_RUN}


@pytest.mark.parametrize("block", each(blocks("json")))
def test_json_is_json(block: Block) -> None:
    values = (
        [json.loads(block.text)] if "\n " in block.text else list(map(json.loads, block.text.splitlines()))
    )
    assert values


def test_the_statement_upon_marks_deletes_them(tmp_path: Path) -> None:
    [block] = [each for each in blocks("sql") if "binlane_marks" in each.text]
    engine = sa.create_engine(f"sqlite:///{tmp_path}/marks.db")
    marks._table("binlane_marks", None).metadata.create_all(engine)
    with sqlite3.connect(tmp_path / "marks.db") as connection:
        deleted = connection.execute(block.text)
        assert deleted.rowcount == 0


def test_the_connect_server_gets_the_delta_that_binlane_uses() -> None:
    [line] = [block.text for block in blocks("sh") if "start-connect-server" in block.text]
    assert f"--packages {versions.coordinate('delta', versions.DEFAULT)} " in line
