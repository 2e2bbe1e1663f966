"""Rows of PostgreSQL with the connector's fillers: in unknown keys, and NULL for unchanged values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from handlers.values.bounds import BeyondCalendar
from worker.formats.debezium.connect.schema import Field
from worker.formats.debezium.connect.times import LOST
from worker.formats.debezium.connect.values import Reader
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.debezium.source import REFUSALS, Row
from worker.formats.interface import UndecodableRecord

_ZEROS: tuple[Any, ...] = (
    *("AA==", "00000000-0000-0000-0000-000000000000"),
    {"scale": 0, "value": "AA=="},
    date(1970, 1, 1),
    *({"x": 0.0, "y": 0.0, "wkb": "AQEA" + "A" * 24, "srid": None}, bytes(4) + b"\1\1" + bytes(19)),
)
_TEXTS = re.compile(r"0(\.0+)?|\{\}|1970-01-01(T00:00:00.*|Z)|00:00:00Z|P0Y0M0DT0H0M0S")
"""Numbers, hstore, times and intervals that the connector sends as text."""


class PostgresRows:
    """The rules for rows of one table with one schema. Immutable, so threads share it."""

    def __init__(
        self,
        table: str,
        fields: Mapping[str, Field],
        readers: Mapping[str, Reader],
        settings: DebeziumSettings,
    ) -> None:
        """`table`: schema.table. `fields`: the columns in the records' schema."""
        self._has_nulls = settings.nulls_beyond_calendar(table)
        self._kept_if_null = settings.kept_if_null(table)
        self._has_zero_keys = settings.has_zero_keys(table)
        self._defaults = {name: _default(field, readers[name]) for name, field in fields.items()}

    def in_calendar(self, row: Row | None, key: Sequence[str]) -> None:
        """Replace times beyond the calendar by NULL, if the configuration says so.

        In a key, infinity becomes text, because a key has no NULL. Others raise UndecodableRecord."""
        if row is None or not self._has_nulls:
            return
        for name, value in row.items():
            if name not in key:
                row[name] = _none_beyond(value)
            elif _is_beyond(value):
                row[name] = text = str(value)
                if "infinity" not in text:
                    shown = "it" if value is LOST else repr(text)
                    raise UndecodableRecord(
                        f"column {name!r} of the key: {shown} is beyond the years 1 to 9999"
                    )

    def deleted(self, row: Row, key: tuple[str, ...]) -> Row:
        """The row, or only its key if the log contains only the key. Raises UndecodableRecord for an unknown
        key.

        The connector fills the other columns with NULL or, if they are NOT NULL, with their defaults. It also
        fills the key if the table has a primary key and REPLICA IDENTITY USING INDEX."""
        logged = [name for name in row if name not in key and not self.is_filler(name, row[name])]
        if logged and self.is_zero(row, key):
            shown = {column: row.get(column) for column in key}
            raise UndecodableRecord(
                f"a delete of the key {shown} that also has other columns. This happens if the source has "
                "REPLICA IDENTITY USING INDEX beside a primary key, and another row was deleted. Give the "
                "table REPLICA IDENTITY DEFAULT or FULL; if the table has a row with this key, list it in "
                "debezium.zero_keys"
            )
        # Without schemas, a default of true is unknown.
        if any(row[name] is not True or self._defaults for name in logged):
            return row
        return {column: value for column, value in row.items() if column in key}

    def updated(self, row: Row) -> Row:
        """An updated row without the NULLs that the connector sends for unchanged values."""
        if kept := self._kept_if_null:
            return {name: value for name, value in row.items() if value is not None or name not in kept}
        return row

    def is_zero(self, row: Row, key: tuple[str, ...]) -> bool:
        """Whether the row's key may consist only of fillers, so that the real key is unknown."""
        return not self._has_zero_keys and all(self.is_filler(column, row.get(column)) for column in key)

    def is_filler(self, column: str, value: Any) -> bool:
        """Whether the value may be the connector's filler for a value that the log does not contain."""
        default = self._defaults.get(column)
        if not value or value in _ZEROS or (default is not None and value == default):
            return True
        if isinstance(value, datetime):
            return value.replace(tzinfo=None) == datetime(1970, 1, 1)
        return isinstance(value, str) and _TEXTS.fullmatch(value) is not None


def _default(field: Field, reader: Reader) -> Any:
    try:
        return None if field.default is None else reader.read(field.default)
    except REFUSALS:
        return None


def _is_beyond(value: Any) -> bool:
    return value is LOST or type(value) is BeyondCalendar


def _none_beyond(value: Any) -> Any:
    if isinstance(value, list):
        return [_none_beyond(item) for item in value]
    return None if _is_beyond(value) else value
