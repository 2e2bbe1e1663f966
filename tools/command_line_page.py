"""docs/command-line.md: every command with its arguments and options, as `--help` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from worker.cli.command_line import app

__all__ = ["commands", "page"]

_WIDTH = 100
_HEAD = """\
# Command line

<!-- made by tools/generate.py -->

Which commands and options exist? This is the `--help` of each command. `CONFIG` is the path of a
[configuration](configuration.md).
"""


def commands() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield (words after `binlane`, its help, its options) of the program, and every command and group."""
    yield from _below(typer.main.get_command(app), "", None)


def page() -> str:
    """Return the whole page, which ends with a line break."""
    parts = [_HEAD]
    for words, text, _ in commands():
        name = f"binlane {words}".strip()
        parts.append(f"\n## {name}\n\n```text\n{text.rstrip()}\n```\n")
    return "".join(parts)


def _below(command: Any, words: str, parent: Any) -> Iterator[tuple[str, str, frozenset[str]]]:
    context = command.context_class(
        command, info_name=f"binlane {words}".rsplit(maxsplit=1)[-1], parent=parent, terminal_width=_WIDTH
    )
    names = {name for each in command.get_params(context) for name in [*each.opts, *each.secondary_opts]}
    yield words, command.get_help(context), frozenset(name for name in names if name.startswith("-"))
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, f"{words} {name}".strip(), context)
