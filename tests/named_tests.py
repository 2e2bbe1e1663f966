"""Tests that documents name, as `file::test` with the file below tests/."""

from __future__ import annotations

import ast
import re
from functools import cache
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


@cache  # a patch or a page names the tests of the same files again and again
def _names_in(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            # hypothesis makes state machines tests by assignment: `test_... = Machine.TestCase`.
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(names)
