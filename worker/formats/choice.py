"""Which format a topic's records have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from worker.formats.interface import Format
from worker.formats.registry import get

if TYPE_CHECKING:
    from worker.configuration.debezium_settings import DebeziumSettings
    from worker.configuration.json_layout import JsonLayout

__all__ = ["FormatChoice", "NoFormatError"]


class NoFormatError(ValueError):
    """No entry of `format` matches the topic."""


class FormatChoice:
    """One reader for each format in use, chosen by topic: by name, or by an expression that begins with ^."""

    def __init__(
        self,
        formats: str | Mapping[str, str],
        json_layout: JsonLayout | None = None,
        debezium: DebeziumSettings | None = None,
    ) -> None:
        """`json_layout` and `debezium`: the configuration's sections; the format json needs the first."""
        entries = {"^": formats} if isinstance(formats, str) else dict(formats)
        readers = {name: get(name, json_layout, debezium) for name in set(entries.values())}
        self._entries = [(pattern, readers[name]) for pattern, name in entries.items()]

    def of(self, topic: str) -> Format:
        """The first entry that matches. Raises NoFormatError."""
        for pattern, reader in self._entries:
            if pattern == topic or (pattern.startswith("^") and re.match(pattern, topic)):
                return reader
        raise NoFormatError(f"no entry of format: matches topic {topic}; add one for it")
