"""Report what a sample's records lack (types, keys), and where to find it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from handlers import Change

_TYPES = {
    "debezium": (
        "decimals stay base64 text, and dates and times stay numbers. Let the connector send schemas "
        "(value.converter.schemas.enable=true), name its DDL topic in kafka.ddl_topics (MySQL, MariaDB), or "
        'give types in debezium.columns: docs/formats.md, "What tells the types"'
    ),
    "maxwell": (
        "dates and bytes stay text. Let Maxwell write DDL (output_ddl=true) and name its topic in "
        'kafka.ddl_topics: docs/formats.md, "Maxwell"'
    ),
    "canal": 'every value stays text, because mysqlType is missing: docs/formats.md, "Canal"',
}
"""Hints by format. DTS always has types, and custom JSON has them in the configuration."""
_KEYS = {
    "debezium": (
        "If the table has a key, take the sample with record keys (kcat -J), and let the connector write "
        'keys: docs/formats.md, "Debezium"'
    ),
    "json": 'If they have one, set json.key to its place: docs/formats.md, "JSON of your own"',
}


@dataclass(slots=True)
class _Table:
    format: str
    has_types: bool = False
    has_key: bool = False


class Untold:
    """Tracks for each table whether any of its rows had types, and a key."""

    def __init__(self, ddl_topics: Sequence[str]) -> None:
        """`ddl_topics`: the topics of `kafka.ddl_topics`, whose records in the sample supply types."""
        self._ddl_topics = ddl_topics
        self._tables: dict[str, _Table] = {}

    def see(self, table: str, format_: str, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.op in ("ddl", "truncate"):
                continue
            seen = self._tables.setdefault(table, _Table(format_))
            seen.has_types = seen.has_types or bool(change.types)
            seen.has_key = seen.has_key or bool(change.key_columns)

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each fact that a table's records lack."""
        for name, table in sorted(self._tables.items()):
            if not table.has_types and table.format in _TYPES:
                yield f"{name}: {self._of_types(table.format)}"
            if not table.has_key:
                hint = _KEYS.get(table.format, "")
                told = "the records have no key, so rows are identified by all their columns together"
                yield f"{name}: {told}. {hint}" if hint else f"{name}: {told}"

    def _of_types(self, format_: str) -> str:
        if self._ddl_topics:
            return (
                "the records have no types, and the sample has no definition of the table: put records of "
                f"kafka.ddl_topics ({', '.join(self._ddl_topics)}) before them to see the types"
            )
        return f"the records have no types: {_TYPES[format_]}"
