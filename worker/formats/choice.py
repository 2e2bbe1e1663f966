"""Which format a topic's records have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from handlers.logs import get_logger
from worker.formats.interface import Format, Record, Route, UndecodableRecord
from worker.formats.registry import get

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.debezium.settings import DebeziumSettings
    from worker.formats.own_json.layout import JsonLayout
    from worker.formats.schema_registry.schemas import Schemas

log = get_logger("formats")


class NoFormatError(ValueError):
    """No entry of `format` matches the topic."""


class _NoFormat:
    """Of a topic that no entry of `format` matches: nothing of it is fetched."""

    name = "none"

    def __init__(self) -> None:
        self.route: Callable[[bytes], Route] = self._refuse

    def explain(self, record: Record) -> NoReturn:
        self._refuse(record)

    def decode(self, record: Record, into: list[Change]) -> None:
        self._refuse(record)

    def source_time_ms(self, record: Record) -> None:
        return None

    def _refuse(self, record: object) -> NoReturn:
        raise UndecodableRecord("no entry of format: matches its topic")


NO_FORMAT: Format = _NoFormat()


def entry_for(topic: str, patterns: Iterable[str]) -> str | None:
    """The first that matches: a name, or an expression that begins with ^."""
    for pattern in patterns:
        if pattern == topic or (pattern.startswith("^") and re.match(pattern, topic)):
            return pattern
    return None


class FormatChoice:
    """One reader for each format in use, chosen by topic: by name, or by an expression that begins with ^."""

    def __init__(
        self,
        formats: str | Mapping[str, str],
        json_layout: JsonLayout | None = None,
        debezium: DebeziumSettings | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        """`json_layout` and `debezium`: the configuration's sections; the format json needs the first.
        `schemas`: of the schema registry, for Debezium's records."""
        self.schemas = schemas
        entries = {"^": formats} if isinstance(formats, str) else dict(formats)
        readers = {name: get(name, json_layout, debezium, schemas) for name in set(entries.values())}
        self._entries = {pattern: readers[name] for pattern, name in entries.items()}
        self._told: set[str] = set()

    def of(self, topic: str) -> Format:
        """The first entry that matches. Raises NoFormatError."""
        entry = entry_for(topic, self._entries)
        if entry is None:
            raise NoFormatError(f"no entry of format: matches topic {topic}; add one")
        return self._entries[entry]

    def of_assigned(self, topic: str) -> Format:
        """The first entry that matches; NO_FORMAT, which is logged, if none does: an expression in
        `kafka.topics` may meet a new topic at any time, and the others are to be read on."""
        try:
            return self.of(topic)
        except NoFormatError as error:
            if topic not in self._told:
                self._told.add(topic)
                log.error(
                    "topic_without_format",
                    topic=topic,
                    error=str(error),
                    hint="its records are neither read nor skipped until the worker is restarted with such "
                    "an entry; other topics are read",
                )
            return NO_FORMAT
