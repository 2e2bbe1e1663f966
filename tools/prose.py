"""Check the prose of the Markdown pages and of the docstrings: sentence length, house words, proselint.

Usage: `prose.py` checks all files. `prose.py --write` lowers the allowances. `prose.py PATH ...` prints every
finding in these files.

`tools/prose.json` allows a number of findings to each file that is older than this check. A file that it does
not list is allowed none. `--write` never raises an allowance.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proselint.checks import __register__ as proselints_checks
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

MOST_WORDS = 25
"""The longest sentence allowed, in words. Code spans and links count as one word. Aim for 20."""

HOUSE_WORDS = {
    "for good": "permanently",
    "so many": "the number",
    "what is none": "name the thing",
    "is to be had": "is available",
    "begun anew": "restarted",
    "begins anew": "restarts",
    "made anew": "recreated",
    "of it": "name the thing",
    "is none": "there is no ...",
    "stands in": "is in",
    "told": "reported, logged, known",
    "and so on": "list them, or 'such as'",
}
"""Phrases that make readers stop, and what to write instead. Source: the project's style rules."""

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = ROOT / "tools" / "prose.json"
PRODUCT = ("worker/", "offsets/", "handlers/", "binlane/", "tools/")

_HOUSE = re.compile(r"\b(" + "|".join(map(re.escape, HOUSE_WORDS)) + r")\b")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
_NO_PROSE = re.compile(r"\s*$|#|\||<|\[[^]]+\]:")
_CELL_END = re.compile(r"(?<!\\)\|")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[\"'(*\[]*(?:[A-Z`]|binlane))")


CheckRegistry().register_many(proselints_checks)
_CONFIG: Config = {
    "max_errors": 1000,
    # The pages use plain quotes and dots; a code span beside another one looks like a repeated word.
    "checks": {**DEFAULT["checks"], "typography": False, "lexical_illusions": False},
}


class Finding(NamedTuple):
    path: str
    line: int
    text: str


def main(arguments: list[str]) -> int:
    paths = [line for line in _tracked() if not arguments or arguments == ["--write"] or line in arguments]
    found = {path: list(findings(path)) for path in paths}
    if arguments and arguments != ["--write"]:
        _print(finding for each in found.values() for finding in each)
        return 1 if any(found.values()) else 0
    allowed: dict[str, int] = json.loads(ALLOWED.read_text()) if ALLOWED.exists() else {}
    if arguments:
        lowered = {path: min(len(each), allowed.get(path, len(each))) for path, each in found.items() if each}
        ALLOWED.write_text(json.dumps(lowered, indent=1, sort_keys=True) + "\n")
        return 0
    over = {path: each for path, each in found.items() if len(each) > allowed.get(path, 0)}
    for path, each in over.items():
        print(f"{path}: {len(each)} findings, {allowed.get(path, 0)} are allowed:")  # noqa: T201 - its answer
        _print(each)
    return 1 if over else 0


def findings(path: str) -> Iterator[Finding]:
    """Yield the findings in the prose of the file `path` (relative to the root)."""
    text = (ROOT / path).read_text()
    passages = list(_of_markdown(text) if path.endswith(".md") else _of_python(text))
    for line, passage in passages:
        for sentence in _SENTENCE_END.split(passage):
            if (words := len(sentence.split())) > MOST_WORDS:
                yield Finding(path, line, f"{words} words, at most {MOST_WORDS}: {sentence[:70]} ...")
        for match in _HOUSE.finditer(passage):
            around = passage[max(0, match.start() - 30) : match.end() + 20]
            yield Finding(path, line, f"{match[0]!r}: {HOUSE_WORDS[match[0]]} ({around})")
    lines, prose = zip(*passages, strict=True) if passages else ((), ())
    linted = LintFile(path, content="\n\n".join(prose) + "\n").lint(_CONFIG) if prose else ()
    for result in linted:
        line = lines[min((result.pos[0] - 1) // 2, len(lines) - 1)]
        yield Finding(path, line, f"{result.check_result.check_path}: {result.check_result.message}")


def _tracked() -> list[str]:
    command = ["git", "ls-files", "*.md", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    prose = (path for path in listed if path.endswith(".md") or path.startswith(PRODUCT))
    return [path for path in prose if (ROOT / path).exists()]


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, list item and table cell with its line; no code blocks or headings."""
    gathered: list[str] = []
    begin, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        item = _ITEM.match(line)
        prose = not (fence or fenced or _NO_PROSE.match(line))
        if gathered and (item or not prose):
            yield begin, _plain(" ".join(gathered))
            gathered = []
        if prose:
            begin = begin if gathered else number
            gathered.append(line[item.end() :] if item else line)
        elif line.startswith("|") and not fenced:
            yield from ((number, _plain(cell)) for cell in _CELL_END.split(line) if cell.strip(" :-"))


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of each docstring with its line."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    for line, passage in _of_markdown(value):
                        yield statement.lineno + line - 1, passage


def _plain(text: str) -> str:
    """Take marks out of `text`; a code span becomes one word."""
    text = re.sub(r"(`+)(?:(?!\1).)+\1", "Code", text)
    text = re.sub(r"!?\[([^][]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", text.replace("**", "").replace("\\|", "|")).strip()


def _print(each: Iterator[Finding] | list[Finding]) -> None:
    for finding in each:
        print(f"{finding.path}:{finding.line}: {finding.text}")  # noqa: T201 - its answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
