"""docs/columns.md: its example does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

from confluent_kafka import Message
from ruling import VECTOR

from handlers import Change
from worker.column_rules.applying import bring_under
from worker.configuration import load
from worker.formats.interface import Record
from worker.formats.registry import get

_PAGE = (Path(__file__).parents[2] / "docs" / "columns.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_gives_the_row_that_the_page_shows(tmp_path: Path) -> None:
    [text, *_], [record, row] = _blocks("yaml"), _blocks("json")
    file = tmp_path / "crm.yaml"
    file.write_text(text)
    rule = load(file, environment={}).tables[0]
    value = json.dumps(json.loads(record)).encode()
    changes: list[Change] = []
    get("canal").decode(cast(Record, Message(topic="crm.canal", partition=0, offset=0, value=value)), changes)
    bring_under(rule.row_rules, rule.statement_rules, changes, 0, database="crm", table="people")
    assert [change.after for change in changes] == [json.loads(row)]


def test_the_hash_on_the_page_is_the_tested_one() -> None:
    assert _PAGE.count(VECTOR) == 2
