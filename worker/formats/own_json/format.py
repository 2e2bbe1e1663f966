"""Records of any JSON, with a layout in the configuration (`json:`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from handlers import Change
from handlers.api import Operation
from worker.formats.decoding import stranger
from worker.formats.images import NOTHING, Image, changes_from, deleted, updated
from worker.formats.interface import PlainRoute, Record, Route, Skip, UndecodableRecord, kafka_time
from worker.formats.json_rows import READ_ERRORS, read_json
from worker.formats.own_json.layout import JsonLayout
from worker.formats.own_json.paths import ABSENT, InValue, Source, found_in, member, read_source, route_of
from worker.formats.own_json.rows import (
    Row,
    RowRule,
    key_columns,
    key_of_tombstone,
    key_rule,
    raw_row,
    reader_of,
    said,
    with_key,
)

_MAX_RULES = 10_000
_SHOWN = 60


class Json:
    """The format of JSON with a configured layout. All threads share one object."""

    name = "json"

    def __init__(self, layout: JsonLayout) -> None:
        self._layout = layout
        self._database, self._table = read_source(layout.database), read_source(layout.table)
        self._operation = _source(layout.operation)
        self._before = _row_path(layout.before)
        self._after = _row_path(layout.after) or ()
        self._time, self._read_time = _source(layout.time), reader_of(layout.time_unit)
        self._transaction = _source(layout.transaction)
        self._is_named_inside = isinstance(self._database, InValue) or isinstance(self._table, InValue)
        self.route: Callable[[bytes], Route] = route_of(self._database, self._table)
        self._lacks = NOTHING if layout.updates == "whole" else None
        self._rule = RowRule(key_rule(layout.key), layout.columns, layout.exclude)
        self._rule_for = lru_cache(_MAX_RULES)(self._made_rule)
        self._text_keys: set[tuple[str, str]] = set()
        """Tables whose last row has a text as its only key column."""

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip a record that `route` refused, or whose database or table is empty."""
        value = record.value()
        if value is None:
            found = self._tombstone(record)
            return Skip("tombstone") if found is None else PlainRoute(*found[0])
        document = _read(value) if self._is_named_inside else ABSENT
        try:
            return PlainRoute(*self._names(document, record))
        except UndecodableRecord:
            if self._operation is not None:
                said = _word(found_in(self._operation, _read(value), record))
                if self._layout.operations.get(said) == "skip":
                    return Skip("operation")
            raise

    def source_time_ms(self, record: Record) -> int | None:
        """The time at `json.time`, or Kafka's time without it."""
        value = record.value()
        return self._time_ms(ABSENT if value is None else _read(value), record)

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the record's change: none if its operation is skipped, two if the row's key changed."""
        value = record.value()
        document: Any = ABSENT
        if value is None:
            found = self._tombstone(record)
            if found is None:
                return
            (database, table), row = found
            rule = self._rule_for(database, table)
            key: tuple[str, ...] | None = tuple(row)
            images: tuple[Image, ...] = (deleted(rule.row(row, dict), key),)
        else:
            document = _read(value)
            rule = self._rule
            if self._layout.tables:
                rule = self._rule_for(*self._names(document, record))
            key, images = self._images(document, value, rule, record)
            if images and isinstance(rule.key, tuple) and len(rule.key) == 1 and not self._is_named_inside:
                self._note_key(images[-1].after or images[-1].before or {}, rule.key[0], record)
        transaction = None
        if self._transaction is not None:
            name = found_in(self._transaction, document, record)
            transaction = None if name is None or name is ABSENT else _word(name)
        ms = self._time_ms(document, record)
        into += changes_from(images, record, key=key, types=rule.types, time_ms=ms, transaction=transaction)

    def _images(
        self, document: Any, value: bytes, rule: RowRule, record: Record
    ) -> tuple[tuple[str, ...] | None, tuple[Image, ...]]:
        before = None if self._before is None else _members(document, self._before, "before")
        after = _members(document, self._after, "after")
        op = self._meaning(document, record, before, after)
        if op is None:
            return None, ()
        columns, beside = key_columns(rule.key, document, record)

        def read(members: Row, path: tuple[str, ...]) -> Row:
            whole = {**beside, **members} if beside else members
            return rule.row(with_key(columns, whole, record), partial(raw_row, value, path))

        if op == "delete":
            gone, path = (after, self._after) if before is None else (before, self._before or ())
            if gone is None and columns is None:
                raise UndecodableRecord("a delete without a row and without a key")
            return columns, (deleted(read(gone or {}, path), columns, self._lacks),)
        if after is None:
            raise UndecodableRecord(f"an operation {op} without a row at json.after: {self._layout.after}")
        row = read(after, self._after)
        if op != "update":
            return columns, (Image(op, None, row),)
        if before is None:
            return columns, updated(None, row, columns, lacks=self._lacks)
        old = rule.row(before, partial(raw_row, value, self._before or ()))
        is_whole = row.keys() <= old.keys()
        # A writer may leave unchanged columns out of `before`, and also out of a partial `after`.
        if self._lacks is None:
            row = {**old, **row}
        old = {**{column: row[column] for column in columns or ()}, **old}
        return columns, updated(old, row, columns, lacks=self._lacks, before_is_whole=is_whole)

    def _meaning(
        self, document: Any, record: Record, before: Row | None, after: Row | None
    ) -> Operation | None:
        """The record's operation, or None for a record to skip."""
        if self._operation is None:
            if before is None and after is None:
                raise UndecodableRecord(f"no row at json.after: {self._layout.after}")
            if before is None:
                return "insert"
            return "delete" if after is None else "update"
        said = _word(found_in(self._operation, document, record))
        meaning = self._layout.operations.get(said)
        if meaning is None:
            known = ", ".join(self._layout.operations)
            raise UndecodableRecord(f"operation {said[:_SHOWN]!r} is not in json.operations ({known})")
        return None if meaning == "skip" else meaning

    def _tombstone(self, record: Record) -> tuple[tuple[str, str], Row] | None:
        """Table and key of the row that a record without a value deletes, or None if they are unknown."""
        try:
            names = self._names(ABSENT, record)
        except UndecodableRecord:
            return None
        key = key_of_tombstone(self._rule_for(*names).key, record, is_text=names in self._text_keys)
        return None if key is None else (names, key)

    def _note_key(self, row: Row, column: str, record: Record) -> None:
        """Note whether the key is a text: the key of a record without a value may have no quotes."""
        is_text = isinstance(row.get(column), str)
        if not is_text and not self._text_keys:
            return  # no name is needed
        if len(self._text_keys) >= _MAX_RULES:
            self._text_keys.clear()
        (self._text_keys.add if is_text else self._text_keys.discard)(self._names(ABSENT, record))

    def _names(self, document: Any, record: Record) -> tuple[str, str]:
        """(database, table) of the record. Raises UndecodableRecord."""
        names = []
        for key, source in (("database", self._database), ("table", self._table)):
            name = found_in(source, document, record)
            if not isinstance(name, str) or not name:
                where = getattr(self._layout, key)
                found = "nothing" if name is ABSENT else repr(name)[:_SHOWN]
                raise UndecodableRecord(f"no {key} at json.{key}: {where} (found {found})")
            names.append(name)
        return names[0], names[1]

    def _made_rule(self, database: str, table: str) -> RowRule:
        name = f"{database}.{table}"
        own = next((own for own in self._layout.tables if own.matches(name)), None)
        if own is None:
            return self._rule
        key = self._layout.key if own.key is None else own.key
        return RowRule(key_rule(key), {**self._layout.columns, **own.columns}, self._layout.exclude)

    def _time_ms(self, document: Any, record: Record) -> int:
        """The change's time in milliseconds since 1970. Raises UndecodableRecord."""
        found = None if self._time is None else found_in(self._time, document, record)
        if found is None or found is ABSENT:
            return kafka_time(record)
        try:
            return self._read_time(found)
        except ValueError as error:
            raise UndecodableRecord(f"json.time: {self._layout.time} holds {found!r:.60}: {error}") from None


def _source(text: str | None) -> Source | None:
    return None if text is None else read_source(text)


def _row_path(text: str | None) -> tuple[str, ...] | None:
    source = _source(text)
    return source.path if isinstance(source, InValue) else None


def _read(value: bytes) -> Any:
    try:
        return read_json(value)
    except READ_ERRORS as error:
        raise stranger(value, "JSON record", error) from None


def _members(document: Any, path: tuple[str, ...], key: str) -> Row | None:
    """The object at the path, or None if the path has no value."""
    found = member(document, path)
    if found is None or found is ABSENT:
        return None
    if not isinstance(found, dict):
        raise UndecodableRecord(f"json.{key}: {'.'.join(path) or 'the value'} is not an object")
    return found


def _word(value: Any) -> str:
    """The value as JSON writes it, but text without quotes. A missing value is null."""
    return said(None if value is ABSENT else value)
