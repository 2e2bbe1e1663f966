"""The columns of a table, as its DTS records name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worker.formats.dts.schema import UNKNOWN_TYPE, column_types
from worker.formats.dts.values import Reader, readers

Row = dict[str, Any]
Columns = tuple[tuple[str, tuple[Reader, ...]], ...]
"""Each column's name and readers, indexed by the byte with a value's class."""

_read_keys = msgspec.json.Decoder(dict[str, list[str]]).decode


class Shape:
    """The columns of one table while they stay the same. Threads share it without a lock, because two threads
    that learn a type at the same time learn the same type."""

    __slots__ = ("_unknown", "columns", "fields", "key_columns", "key_tag", "names", "source_type", "types")

    def __init__(
        self, read: Sequence[Mapping[str, Any]], fields: bytes, key_tag: str, source_type: str
    ) -> None:
        """`read` and `fields`: the record's `fields`, decoded and as bytes. `key_tag`: its tag `pk_uk_info`.

        Raises ValueError if the tag is not a JSON object of column names."""
        known = column_types(source_type)
        self.fields = fields
        self.key_tag = key_tag
        self.source_type = source_type
        columns: list[tuple[str, tuple[Reader, ...]]] = []
        types: dict[str, str] = {}
        unknown: dict[str, tuple[str | None, str | None]] = {}
        for field in read:
            name, type_ = field["name"], known.get(field["dataTypeNumber"], UNKNOWN_TYPE)
            columns.append((name, readers(type_.kind)))
            if type_.text is not None:
                types[name] = type_.text
            elif type_.of_text is not None:
                unknown[name] = type_.of_text, type_.of_bytes
        self.columns: Columns = tuple(columns)
        self.names = frozenset(name for name, _ in columns)
        self.types: Mapping[str, str] = types
        """Column -> type text, for columns whose type is known so far. The first value other than NULL
        decides whether a column is VARCHAR or VARBINARY."""
        self._unknown: Mapping[str, tuple[str | None, str | None]] = unknown
        key = _read_keys(key_tag).get("PRIMARY") if key_tag else None
        self.key_columns = tuple(key) if key else None

    def learn(self, row: Row) -> None:
        """Learn the types of columns with an ambiguous type number from a row's values."""
        if not self._unknown:
            return
        learned: dict[str, str] = {}
        for column, (of_text, of_bytes) in self._unknown.items():
            found = row.get(column)
            if found is not None:
                type_text = of_text if isinstance(found, str) else of_bytes
                if type_text is not None:
                    learned[column] = type_text
        if learned:
            types = {**self.types, **learned}
            self.types = {column: types[column] for column, _ in self.columns if column in types}
            self._unknown = {name: texts for name, texts in self._unknown.items() if name not in learned}
