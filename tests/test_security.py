"""SECURITY.md names the test of each threat: they are there."""

from __future__ import annotations

import re
from pathlib import Path

from named_tests import missing, named

_PROJECT = Path(__file__).parents[1]
_SECURITY = _PROJECT / "SECURITY.md"


def rows() -> list[str]:
    table = _SECURITY.read_text().partition("## What is not trusted")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("|")][2:]


def test_every_test_that_is_named_is_there() -> None:
    assert not missing(_SECURITY.read_text())


def test_every_threat_has_a_test() -> None:
    assert len(rows()) >= 20
    assert [row for row in rows() if not named(row)] == []


def test_nothing_is_to_be_installed_from_a_registry_that_does_not_have_it() -> None:
    """Whoever took the name there would be installed in binlane's place."""
    tracked = [*_PROJECT.glob("*.md"), *_PROJECT.glob("docs/**/*.md"), *_PROJECT.glob("examples/**/*.md")]
    code = [
        path for folder in ("worker", "handlers", "offsets") for path in (_PROJECT / folder).rglob("*.py")
    ]
    found = [
        f"{path.name}: {line.strip()}"
        for path in (*tracked, *code)
        for line in path.read_text().splitlines()
        if re.search(r"pip install [^.]*\bbinlane\b", line)
    ]
    assert found == []
