"""The formats by their names in the configuration, and which one a topic's records have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from handlers.logs import get_logger
from worker.formats.interface import Format, Record, Route, UndecodableRecord

if TYPE_CHECKING:
    from handlers import Change
    from worker.formats.debezium.settings import DebeziumSettings
    from worker.formats.own_json.layout import JsonLayout
    from worker.formats.schema_registry.schemas import Schemas

log = get_logger("formats")


def names() -> tuple[str, ...]:
    """Names of the available formats, in the order of the documentation."""
    return ("canal", "debezium", "maxwell", "dts", "json")


def get(
    name: str,
    json_layout: JsonLayout | None = None,
    debezium: DebeziumSettings | None = None,
    schemas: Schemas | None = None,
) -> Format:
    """Make a reader of this format. `json_layout` is the layout of records of the format json. `debezium` has
    the settings that Debezium's records do not contain; `schemas` are the schemas that they name by id.

    Raises KeyError for an unknown name, with the known ones, and ValueError for json without its layout."""
    # Import only the format in use: all formats together are a tenth of a worker's imports.
    if name == "canal":
        from worker.formats.canal.format import Canal  # noqa: PLC0415

        return Canal()
    if name == "debezium" and schemas is not None:
        from worker.formats.schema_registry.format import debezium_with  # noqa: PLC0415

        return debezium_with(schemas, debezium)
    if name == "debezium":
        from worker.formats.debezium.format import Debezium  # noqa: PLC0415

        return Debezium(debezium)
    if name == "maxwell":
        from worker.formats.maxwell.format import Maxwell  # noqa: PLC0415

        return Maxwell()
    if name == "dts":
        from worker.formats.dts.format import DTS  # noqa: PLC0415

        return DTS()
    if name == "json":
        if json_layout is None:
            raise ValueError("the format json needs its layout, the section json")
        from worker.formats.own_json.format import Json  # noqa: PLC0415

        return Json(json_layout)
    raise KeyError(f"unknown format {name!r}; allowed: {', '.join(names())}")


class NoFormatError(ValueError):
    """No entry of `format` matches the topic."""


class _NoFormat:
    """The format of a topic that no entry of `format` matches. Such a topic is not fetched."""

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
    """Return the first pattern that matches: the topic's name, or an expression that begins with ^."""
    for pattern in patterns:
        if pattern == topic or (pattern.startswith("^") and re.match(pattern, topic)):
            return pattern
    return None


class FormatChoice:
    """One reader for each format in use. An entry is a topic's name, or an expression that begins with ^."""

    def __init__(
        self,
        formats: str | Mapping[str, str],
        json_layout: JsonLayout | None = None,
        debezium: DebeziumSettings | None = None,
        schemas: Schemas | None = None,
        gathered: Callable[[Format], Format] = lambda own: own,
    ) -> None:
        """`json_layout`, `debezium`: sections of the configuration. The format json needs `json_layout`.
        `schemas`: those of the schema registry, for Debezium's records. `gathered`: gathers databases."""
        self.schemas = schemas
        entries = {"^": formats} if isinstance(formats, str) else dict(formats)
        readers = {one: gathered(get(one, json_layout, debezium, schemas)) for one in set(entries.values())}
        self._entries = {pattern: readers[name] for pattern, name in entries.items()}
        self._reported: set[str] = set()

    def of(self, topic: str) -> Format:
        """Return the format of the first entry that matches. Raises NoFormatError."""
        entry = entry_for(topic, self._entries)
        if entry is None:
            raise NoFormatError(f"no entry of format: matches topic {topic}; add one")
        return self._entries[entry]

    def of_assigned(self, topic: str) -> Format:
        """As `of`, but if no entry matches, log that once and return NO_FORMAT. An expression in
        `kafka.topics` may match a new topic at any time, and the worker must continue to read the others."""
        try:
            return self.of(topic)
        except NoFormatError as error:
            if topic not in self._reported:
                self._reported.add(topic)
                log.error(
                    "topic_without_format",
                    topic=topic,
                    error=str(error),
                    hint="its records are neither read nor skipped until the worker is restarted with such "
                    "an entry; other topics are read",
                )
            return NO_FORMAT
