"""The prose check finds long sentences and house words in pages and docstrings, and nothing in code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import prose

LONG = " ".join(["word"] * 26)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", f"Short.\n\n{LONG}\n", [3]),
        ("a.md", f"- Short.\n- {LONG[:60]}\n  {LONG[60:]}\n", [2]),
        ("a.md", f"| short | {LONG} |\n", [1]),
        ("a.md", f"```\n{LONG}\n```\n`{LONG}` is code.\n", []),
        ("a.md", "It stops for good.\n", [1]),
        ("a.md", "This is very unique.\n", [1]),
        ("a.py", f'def f():\n    """{LONG}"""\n    return "{LONG}"\n', [2]),
    ],
)
def test_findings_are_in_prose_alone(page: Path, name: str, text: str, lines: list[int]) -> None:
    (page / name).write_text(text)
    assert sorted({finding.line for finding in prose.findings(name)}) == lines
