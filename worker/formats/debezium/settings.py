"""The `debezium:` section: what Debezium's records do not say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from handlers.options.matching import table_matcher
from handlers.options.section import Section
from handlers.options.values import TablePattern, not_allowed

_TYPE = "a type in the source's own words, such as numeric(12,2), bytea, timestamptz or varbinary(16)"


def is_known(text: str) -> bool:
    """Whether a type of MySQL or PostgreSQL is written so."""
    # Not above: what reads types takes its time, and most files name none.
    from handlers.mysql.types import read_type  # noqa: PLC0415
    from worker.formats.debezium.postgres.types import postgres_type  # noqa: PLC0415
    from worker.formats.own_json.columns import TYPE_NAMES  # noqa: PLC0415

    return read_type(text).name in TYPE_NAMES or postgres_type(text) is not None


def _type(value: object) -> str:
    if not isinstance(value, str) or not is_known(value):
        raise not_allowed(_TYPE)
    return value


Name = Annotated[str, Field(min_length=1)]
TypeText = Annotated[str, PlainValidator(_type), WithJsonSchema({"type": "string", "minLength": 1})]


class DebeziumSettings(Section):
    """What Debezium's records do not say of themselves; see docs/formats.md."""

    source: Literal["mysql", "mariadb", "postgresql"] | None = None
    """The connector of records that do not name theirs (flattened ones without source.connector)."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] | None = None
    """The connector's binary.handling.mode, for bytes that come as text without a schema."""
    decimals: Literal["precise", "string", "double"] | None = None
    """The connector's decimal.handling.mode, for records without schemas."""
    columns: dict[TablePattern, dict[Name, TypeText]] = Field(default={})
    """Types of columns that the records do not tell, in the source's own words, by pattern of database.table:
    {public.orders: {total: "numeric(12,2)"}}."""
    keep_if_null: dict[TablePattern, list[Name]] = Field(default={})
    """Columns by pattern of database.table whose NULL in an update of PostgreSQL means: unchanged."""
    zero_keys: list[TablePattern] = Field(default=[])
    """Patterns of tables of PostgreSQL that have a row whose key is 0 or empty: deletes of it are taken."""
    null_beyond_calendar: list[TablePattern] = Field(default=[])
    """Patterns of tables of PostgreSQL whose infinities, BC dates and years beyond 9999 become NULL."""
    ordered: bool = False
    """Whether each topic of PostgreSQL's tables has one partition: then the halves of a changed key come in
    the order of the source's log, and the row keeps large values that stayed as they were."""
    fields_prefix: Name = "__"
    """The add.fields.prefix of ExtractNewRecordState."""

    def types_of(self, table: str) -> Mapping[str, str]:
        """Column -> type of `columns`, of a table ("database.table"); what matches first wins."""
        found: dict[str, str] = {}
        for pattern, types in self.columns.items():
            if table_matcher(pattern)(table):
                found = {**types, **found}
        return found

    def kept_if_null(self, table: str) -> frozenset[str]:
        """The columns of `keep_if_null` of a table."""
        patterns = self.keep_if_null.items()
        return frozenset(
            name for pattern, names in patterns if table_matcher(pattern)(table) for name in names
        )

    def nulls_beyond_calendar(self, table: str) -> bool:
        """Whether a table is one of `null_beyond_calendar`."""
        return any(table_matcher(pattern)(table) for pattern in self.null_beyond_calendar)

    def has_zero_keys(self, table: str) -> bool:
        """Whether a table is one of `zero_keys`."""
        return any(table_matcher(pattern)(table) for pattern in self.zero_keys)
