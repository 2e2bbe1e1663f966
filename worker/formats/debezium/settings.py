"""The `debezium:` section: settings for facts that Debezium's records do not contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from handlers.options.matching import table_matcher
from handlers.options.shared import Section
from handlers.options.values import TablePattern, not_allowed

_TYPE = "a type in the source's own words, such as numeric(12,2), bytea, timestamptz or varbinary(16)"


def is_known(text: str) -> bool:
    """Whether the text is a type of MySQL or PostgreSQL."""
    # Imported here, because these imports are slow and most configurations name no types.
    from handlers.mysql.types import read_type  # noqa: PLC0415
    from worker.formats.debezium.postgres_types import postgres_type  # noqa: PLC0415
    from worker.formats.own_json.rows import TYPE_NAMES  # noqa: PLC0415

    return read_type(text).name in TYPE_NAMES or postgres_type(text) is not None


def _type(value: object) -> str:
    if not isinstance(value, str) or not is_known(value):
        raise not_allowed(_TYPE)
    return value


Name = Annotated[str, Field(min_length=1)]
TypeText = Annotated[str, PlainValidator(_type), WithJsonSchema({"type": "string", "minLength": 1})]


class DebeziumSettings(Section):
    """Settings for facts that Debezium's records do not contain; see docs/formats.md."""

    source: Literal["mysql", "mariadb", "postgresql"] | None = None
    """The connector, for records that do not name it (flattened records without source.connector)."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] | None = None
    """The connector's binary.handling.mode, for bytes sent as text without a schema."""
    decimals: Literal["precise", "string", "double"] | None = None
    """The connector's decimal.handling.mode, for records without schemas."""
    columns: dict[TablePattern, dict[Name, TypeText]] = Field(default={})
    """Column types that the records do not contain, as the source names them, by pattern of database.table:
    {public.orders: {total: "numeric(12,2)"}}."""
    keep_if_null: dict[TablePattern, list[Name]] = Field(default={})
    """PostgreSQL columns, by pattern of database.table, whose NULL in an update means: unchanged."""
    zero_keys: list[TablePattern] = Field(default=[])
    """Patterns of PostgreSQL tables that have a row whose key is 0 or empty. Its deletes are applied."""
    null_beyond_calendar: list[TablePattern] = Field(default=[])
    """Patterns of PostgreSQL tables whose infinities, BC dates and years beyond 9999 become NULL."""
    ordered: bool = False
    """Whether each topic of PostgreSQL tables has one partition. Then the delete and the insert of a changed
    key arrive in the order of the source's log. The row keeps its unchanged large values."""
    fields_prefix: Name = "__"
    """The add.fields.prefix of ExtractNewRecordState."""

    def types_of(self, table: str) -> Mapping[str, str]:
        """The types in `columns` of a table ("database.table"): column -> type. The first match wins."""
        found: dict[str, str] = {}
        for pattern, types in self.columns.items():
            if table_matcher(pattern)(table):
                found = {**types, **found}
        return found

    def kept_if_null(self, table: str) -> frozenset[str]:
        """The table's columns in `keep_if_null`."""
        patterns = self.keep_if_null.items()
        return frozenset(
            name for pattern, names in patterns if table_matcher(pattern)(table) for name in names
        )

    def nulls_beyond_calendar(self, table: str) -> bool:
        """Whether a table matches a pattern of `null_beyond_calendar`."""
        return any(table_matcher(pattern)(table) for pattern in self.null_beyond_calendar)

    def has_zero_keys(self, table: str) -> bool:
        """Whether a table matches a pattern of `zero_keys`."""
        return any(table_matcher(pattern)(table) for pattern in self.zero_keys)
