"""The snippets that the documentation shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

__all__ = ["ROOT", "Block", "blocks", "each"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")], key=str
)
_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One snippet: `language` as behind its fence ("" for commands), `line` of its page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """Those of all pages, in these languages; of any if none is given."""
    for page in PAGES:
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            if not languages or found[2] in languages:
                yield Block(page, text.count("\n", 0, found.start()) + 1, found[2], textwrap.dedent(found[3]))


def each(found: Iterable[Block]) -> list[ParameterSet]:
    """Parameters of a test, named by their places."""
    return [pytest.param(block, id=block.place) for block in found]
