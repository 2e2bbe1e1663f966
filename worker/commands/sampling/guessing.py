"""Which format a topic's records have, and which tables they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers import Change
from worker.commands.sampling.review import Untold
from worker.formats import registry
from worker.formats.decoding import decoded, hint_at
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord, remade
from worker.formats.json_rows import object_in
from worker.units.table import routed

PLAIN = re.compile(r"[\w-]+")
"""Names that mean themselves in a configuration: no pattern, path, variable or control character."""
_SHOWN = 24


class GuessError(Exception):
    """Why no configuration can be written, in one sentence without values of records."""


@dataclass(frozen=True)
class Guess:
    format: str
    tables: Sequence[str]
    """`database.table`, sorted."""
    layout: Mapping[str, Any]
    """The section `json`; empty for other formats."""
    read: int
    """How many of the `records` have changes in this format."""
    records: int
    notes: Sequence[str] = ()


def guessed(records: Sequence[Record], topic: str, untold: Untold) -> Guess:
    """Return the format that reads most records. Raises GuessError."""
    values = [record.value() for record in records]
    given = [record for record, value in zip(records, values, strict=True) if value]
    best: tuple[int, str, list[tuple[Route, list[Change]]]] = (0, "", [])
    for name in registry.names():
        if name == "json":  # that needs a layout
            continue
        format_ = registry.get(name)
        read = [found for record in given if (found := _changes(format_, record))]
        if len(read) > best[0]:
            best = len(read), name, [one for found in read for one in found]
    count, name, found = best
    if not name:
        return _own_json(given, topic)
    for route, changes in found:
        untold.see(f"{route.database}.{route.table}", name, changes)
    tables = sorted({f"{route.database}.{route.table}" for route, _ in found})
    return Guess(name, tables, {}, count, len(given), list(untold.notes()))


def other_format(format_: Format, record: Record) -> str | None:
    """Return the first format that finds changes in a record that `format_` cannot read."""
    names = (name for name in registry.names() if name not in (format_.name, "json"))  # that needs a layout
    return next((name for name in names if _changes(registry.get(name), record)), None)


def _changes(format_: Format, record: Record) -> list[tuple[Route, list[Change]]]:
    """Return the record's changes by route; empty if the format cannot read it."""
    try:
        found = changes_by_route(format_, record)
    except UndecodableRecord:
        return []
    return [] if isinstance(found, Skip) else [(route, changes) for route, changes in found if changes]


def changes_by_route(format_: Format, record: Record) -> Skip | list[tuple[Route, list[Change]]]:
    """Decode a record, or its parts in source order. Raises UndecodableRecord."""
    found = routed(format_, record)
    if isinstance(found, Skip):
        return found
    told: list[tuple[Route, list[Change]]] = []
    for route, value in found.parts if isinstance(found, Apart) else [(found, record.value())]:
        changes: list[Change] = []
        decoded(format_, remade(record, record.key(), value), changes)
        told.append((route, changes))
    return told


def _own_json(records: Sequence[Record], topic: str) -> Guess:
    """Return a layout for JSON objects of any writer: the topic's name is that of the table."""
    rows: list[Any] = []
    for value in (record.value() or b"" for record in records):
        row = object_in(value)
        if row is None or (hint := hint_at(value, "json")):
            told = f"; {_shape(value)}" if row is None else hint
            raise GuessError(f"topic {topic}: no format reads its records{told}")
        rows.append(row)
    if not rows:
        raise GuessError(f"topic {topic}: its first records have no values")
    if len(topics := {record.topic() for record in records}) > 1:
        raise GuessError(
            f"topic {topic}: JSON of several topics: choose one of {', '.join(sorted(topics)[:20])}"
        )
    database, _, table = topics.pop().strip(".").rpartition(".")
    after = "."
    objects = [{name for name in row if isinstance(row[name], dict)} for row in rows]
    nested = set(filter(PLAIN.fullmatch, set[str].intersection(*objects)))
    if not all("id" in row for row in rows) and len(nested := nested & {"after"} or nested) == 1:
        after = nested.pop()  # of several, another may be the row
        rows = [row[after] for row in rows]
    key = [name for name in ("id", f"{table}_id") if all(row.get(name) is not None for row in rows)][:1]
    layout: dict[str, Any] = {"database": f"={database or 'topics'}", "table": f"={table}", "after": after}
    notes = ["no key was found, so rows are identified by all their columns: set json.key"]
    if key:
        layout["key"], notes = key, []
    return Guess("json", [f"{database or 'topics'}.{table}"], layout, len(rows), len(rows), notes)


def _shape(value: bytes) -> str:
    """Describe a value without showing it."""
    if value[:1] == b"\0" and len(value) > 5:
        number = int.from_bytes(value[1:5], "big")
        return (
            f"one begins as with a schema registry (schema {number}): write format: debezium and "
            "schema_registry into a file yourself, see docs/schema-registry.md"
        )
    letters = "".join(
        "a" if byte.isalpha() else "9" if byte.isdigit() else byte if byte.isprintable() else "?"
        for byte in value[:_SHOWN].decode("latin-1")
    )
    return f"one has {len(value)} bytes and begins like {letters!r} (a: a letter, 9: a digit, ?: binary)"
