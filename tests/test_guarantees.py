"""docs/guarantees.md names the test of each promise: they are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_TESTS = Path(__file__).parent
_GUARANTEES = _TESTS.parent / "docs" / "guarantees.md"
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_test_that_the_guarantees_name_is_there() -> None:
    named = _NAMED.findall(_GUARANTEES.read_text())
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test in named if test not in _names_in(_TESTS / file)]
    assert not missing


def test_no_promise_is_without_a_test() -> None:
    text = _GUARANTEES.read_text().partition("## What is not promised")[0]
    without = [part.partition("\n")[0] for part in text.split("\n## ")[1:] if not _NAMED.search(part)]
    assert not without


def _names_in(file: Path) -> set[str]:
    if not file.exists():
        return set()
    tree = ast.parse(file.read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    # hypothesis makes state machines tests by assignment: `test_... = Machine.TestCase`.
    targets = (t for node in ast.walk(tree) if isinstance(node, ast.Assign) for t in node.targets)
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return functions | classes | {target.id for target in targets if isinstance(target, ast.Name)}
