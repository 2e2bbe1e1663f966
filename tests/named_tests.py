"""Tests that documents name, as `file::test` with the file below tests/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

__all__ = ["missing", "named"]

_TESTS = Path(__file__).parent
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def named(text: str) -> list[tuple[str, str]]:
    """(file, test) of each."""
    return _NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Those that are not there."""
    return [f"{file}::{test}" for file, test in named(text) if test not in _names_in(_TESTS / file)]


def _names_in(file: Path) -> set[str]:
    if not file.exists():
        return set()
    tree = ast.parse(file.read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    # hypothesis makes state machines tests by assignment: `test_... = Machine.TestCase`.
    targets = (t for node in ast.walk(tree) if isinstance(node, ast.Assign) for t in node.targets)
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return functions | classes | {target.id for target in targets if isinstance(target, ast.Name)}
