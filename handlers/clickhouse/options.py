"""The options of the `clickhouse` handler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from pydantic import Field, field_validator, model_validator

from handlers.options.shared import HistoryOptions, VersionedOptions, header_text
from handlers.options.templates import Template, template_of_table
from handlers.options.values import PositiveDuration, PositiveSize, duration, size

OWN_SETTINGS = {
    # With this, an error has its own status, and does not appear inside a successful answer.
    "wait_end_of_query": "1",
    # A user's profile may set 1. Inserts would then be acknowledged before they are written.
    "async_insert": "0",
    # Versions already handle repeated rows. With deduplication, a block would be lost if the server had an
    # equal one before the table was emptied.
    "insert_deduplicate": "0",
    # Queries say FINAL themselves. A user's profile may set it for all queries, and would hide deleted rows.
    "final": "0",
    # A profile could silently truncate the results that are read here.
    "limit": "0",
    "offset": "0",
    **{f"{what}_overflow_mode": "throw" for what in ("result", "read", "timeout", "set", "group_by")},
    "use_query_cache": "0",
    "input_format_with_names_use_header": "1",
    "input_format_with_types_use_header": "1",
    "alter_sync": "2",
    "mutations_sync": "2",
}

OWN_COLUMNS: Mapping[str, str] = {
    "_version": "UInt64",
    "_deleted": "UInt8",
    "_partition": "LowCardinality(String)",
    "_source_time_ms": "Int64",
}
"""binlane's columns, in addition to the source's."""
OPENED = "_opened"


class ClickHouseOptions(HistoryOptions, VersionedOptions):
    """The keys of a `type: clickhouse` entry."""

    database: str = Field(default="{database}", min_length=1)
    """The target table's database; {database} and {table} are replaced."""
    table: str = "{table}"
    """The target table's name; {database} and {table} are replaced."""
    settings: dict[str, str | int | float | bool] = Field(default={})
    """ClickHouse settings for each query and insert, such as insert_quorum: auto."""
    max_bytes: PositiveSize = size("32MiB")
    """The most bytes of one insert. A larger row is sent alone."""
    timeout: PositiveDuration = duration("5m")
    """The timeout for a connection, and for an answer."""

    _are_ascii = field_validator("username", "password")(header_text)
    _are_templates = field_validator("database", "table")(template_of_table)

    @field_validator("settings")
    @classmethod
    def _settings_are_not_ours(
        cls, settings: dict[str, str | int | float | bool]
    ) -> dict[str, str | int | float | bool]:
        for name in settings:
            if name in OWN_SETTINGS or not re.fullmatch(r"[a-z0-9_]+", name) or name in ("query", "password"):
                raise ValueError(f"{name} cannot be set: it does not exist, or binlane needs its own value")
        return settings

    @model_validator(mode="after")
    def _names_the_table(self) -> Self:
        fields = [*Template(self.database, row=False).fields, *Template(self.table, row=False).fields]
        if not any(field.kind == "table" for field in fields):
            raise ValueError("every table would have the same place: table needs {table}")
        if taken := {*OWN_COLUMNS, OPENED}.intersection(self.period or ()):
            raise ValueError(f"start_column and end_column cannot be {min(taken)}: binlane needs that column")
        return self
