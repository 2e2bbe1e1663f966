"""Every `binlane ...` that the documentation shows is a command, with options that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line_page import commands
from generate import stale

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
KNOWN = {words: options | {"--help"} for words, _, options in commands()}
GROUPS = {words.split()[0] for words in KNOWN if " " in words}


def shown(text: str) -> Iterator[str]:
    """The command lines in backticks, and those that begin a line of a block (after a prompt)."""
    for block in re.findall(r"^ *```(?!text).*?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^ *(?:\$ )?(binlane [a-z-].*)$", block.replace("\\\n", " "), re.MULTILINE)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`(binlane [a-z-][^`\n]*)`", prose)


def fault(line: str) -> str | None:
    """What is wrong with a command line, None if nothing is."""
    words = re.split(r" [#|>]|;|&&", line)[0].split()[1:]
    name = "" if words[0].startswith("-") else words[0]
    if name in GROUPS and len(words) > 1 and not words[1].startswith("-"):
        name = " ".join(words[:2])
    if name not in KNOWN:
        return f"{line}: there is no command {name}"
    given = {word.strip("[],.").partition("=")[0] for word in words if word.strip("[").startswith("--")}
    gone = sorted(given - KNOWN[name])
    return f"{line}: no option {', '.join(gone)}" if gone else None


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("binlane chek FILE", "no command chek"),
        ("binlane check --conect FILE", "no option --conect"),
        ("binlane checkpoint sett FILE", "no command checkpoint sett"),
        ("binlane tables CONFIG [--jsn]", "no option --jsn"),
    ],
)
def test_a_command_line_that_is_wrong_is_found(line: str, part: str) -> None:
    assert part in str(fault(line))


def test_every_command_line_shown_is_one() -> None:
    lines = [(page, line) for page in PAGES for line in shown(page.read_text())]
    assert len(lines) > 50
    assert [f"{page.relative_to(ROOT)}: {told}" for page, line in lines if (told := fault(line))] == []


def test_the_page_is_what_the_commands_say() -> None:
    assert "docs/command-line.md" not in stale(ROOT)
    assert "## binlane checkpoint set\n" in (ROOT / "docs/command-line.md").read_text()
