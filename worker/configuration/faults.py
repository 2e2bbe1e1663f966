"""Faults of a configuration: one line each, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that makes a configuration unusable.

    `str(fault)` is one line: file and line, key path, what was found, what is allowed, the nearest spelling.
    """

    file: str
    found: str
    """`found "x"`, `unknown key`, `missing`, or a sentence about the file itself."""
    path: str = ""
    """`tables[2].handlers[0].type`; empty for a fault of the file itself."""
    allowed: str = ""
    nearest: str | None = None
    line: int | None = None
    """Counted from 1."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [self.found]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.nearest:
            # Quoted if YAML needs it, so the user can copy it.
            quoted = json.dumps(self.nearest) if self.nearest[0] in "*&%@!`" else self.nearest
            parts.append(f"nearest: {quoted}")
        text = ": ".join(part for part in (place, self.path, "; ".join(parts)) if part)
        return " ".join(text.splitlines())


class ConfigurationError(Exception):
    """The configuration cannot be used. `faults` lists every fault, in the order of the file.

    The text of the exception has one line for each fault."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = list(faults)


def key_path(path: KeyPath) -> str:
    """Format a path as it is written in text.

    >>> key_path(("tables", 2, "handlers", 0, "type"))
    'tables[2].handlers[0].type'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def shown(value: Any) -> str:
    """Format a value for a fault: short, on one line, and without the contents of mappings and lists."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
