"""The tables of keys that are written by hand have every key of the model, with its default."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from configuration_page import sections
from generate import GENERATED, KEYS

MODEL = {heading.strip("`"): {key: default for key, _, default, _ in rows} for heading, _, rows in sections()}
DOCS = ROOT / "docs"
HANDLERS = {
    "sql.md": "handler sql",
    "redis.md": "handler redis",
    "kafka.md": "handler kafka",
    "webhook.md": "handler webhook",
    "clickhouse.md": "handler clickhouse",
    "elasticsearch.md": "handler elasticsearch",
    "parquet.md": "handler files",
}
Table = tuple[str, list[list[str]]]


def tables() -> Iterator[Table]:
    """(section of the model, its rows) of each table of keys."""
    for page in [DOCS / "configuration.md", DOCS / "spark.md", *sorted((DOCS / "handlers").glob("*.md"))]:
        heading = ""
        for part in re.split(r"^(?=#)|\n\n", page.read_text(), flags=re.MULTILINE):
            if part.startswith("#"):
                heading = part.splitlines()[0].strip("# `")
            if part.startswith("| key") and part.splitlines()[0].endswith("default |"):
                rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in part.splitlines()]
                yield _section(page, heading, rows[0][0]), rows[2:]


def _section(page: Path, heading: str, first: str) -> str:
    special = {
        "key of `spark:`": "spark",
        "key of `journal`": "checkpoint.journal",
        "key of `limit`": "tables[].handlers[].limit",
        "Keys of the handler": "handler spark",
        "tables": "tables[]",
        "databases": "databases.<name>",
        "A handler": "tables[].handlers[]",
        "retry": "tables[].retry",
        "files": "handler files",
        "log": "handler log",
    }
    return special.get(first) or HANDLERS.get(page.name) or special.get(heading, heading)


def differing(section: str, rows: list[list[str]]) -> Iterator[str]:
    """Each key whose default the table tells otherwise than the model, or that the model does not have."""
    for row in rows:
        keys, told = re.findall(r"`([^`]+)`", row[0]), row[-1] if len(row) == 3 else ""
        values = re.findall(r"`[^`]*`", told)
        before = ""
        for number, key in enumerate(keys):
            path = key if "." in key else f"{before}{key}"
            before = path[: path.rindex(".") + 1] if "." in path else ""
            inner, _, name = path.rpartition(".")
            known = MODEL[f"{section}.{inner}" if inner else section]
            if name not in known:
                yield f"{section}: no key {path}"
            elif told == "required" or known[name] == "required":
                if told != known[name]:
                    yield f"{section}.{path}: {told} is {known[name]}"
            elif re.fullmatch(r"`[^`]*`(, `[^`]*`)*", told) and len(values) == len(keys):
                known_by_words = not re.fullmatch(r"`[^`]*`", known[name])
                if not known_by_words and known[name] != values[number]:
                    yield f"{section}.{path}: {values[number]} is {known[name]}"


@pytest.mark.parametrize(("section", "rows"), [pytest.param(*each, id=each[0]) for each in tables()])
def test_a_table_of_keys_is_as_the_model(section: str, rows: list[list[str]]) -> None:
    assert list(differing(section, rows)) == []


@pytest.mark.parametrize(
    "row",
    [["`max_record`", "x", "`1000`"], ["`max_records`", "x", "`1001`"], ["`max_records`", "x", "required"]],
)
def test_a_row_that_is_wrong_is_found(row: list[str]) -> None:
    assert len(list(differing("batch", [row]))) == 1


def test_each_table_of_keys_has_every_key_of_its_section() -> None:
    shown: dict[str, set[str]] = {}
    for section, rows in tables():
        for row in rows:
            keys = [key.partition(".")[0] for key in re.findall(r"`([^`]+)`", row[0])]
            shown.setdefault(section, set()).update(keys)
    assert len(shown) > 18
    assert {
        name: sorted(MODEL[name].keys() - keys) for name, keys in shown.items() if MODEL[name].keys() - keys
    } == {}


def test_the_page_of_all_keys_is_what_the_model_says() -> None:
    assert GENERATED[KEYS](ROOT) == (ROOT / KEYS).read_text()
    text = (ROOT / KEYS).read_text()
    assert "| `max_wait` | duration | `0s` |" in text
    assert text.count("\n## ") > 20
