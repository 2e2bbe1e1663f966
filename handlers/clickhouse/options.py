"""The options of the `clickhouse` handler."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from handlers.options.http_values import TlsOptions, header_text, server_url
from handlers.options.templates import Template, TemplateError
from handlers.options.values import PositiveDuration, PositiveSize, duration, size

__all__ = ["OWN_SETTINGS", "ClickHouseOptions"]

OWN_SETTINGS = {
    # An error comes with its status, and not within an answer that began well.
    "wait_end_of_query": "1",
    # A user's profile may say otherwise; then an insert is told to be there before it is.
    "async_insert": "0",
    # Versions see to what comes twice. A block that the server passes over, since it had one like it before
    # somebody emptied the table, is lost.
    "insert_deduplicate": "0",
    # Where FINAL is meant it is said: a user's profile may say it for all, and would hide deleted rows.
    "final": "0",
    "input_format_with_names_use_header": "1",
    "input_format_with_types_use_header": "1",
    "alter_sync": "2",
    "mutations_sync": "2",
}


class ClickHouseOptions(BaseModel):
    """The keys of a `type: clickhouse` entry."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="The server's HTTP interface: http://HOST:8123, https://HOST:8443.")
    username: str | None = Field(default=None, min_length=1, description="The user, with `password`.")
    password: str | None = Field(default=None, min_length=1, repr=False, description="The user's password.")
    tls: TlsOptions = Field(default=TlsOptions(), description="Certificates.")
    database: str = Field(
        default="{database}",
        min_length=1,
        description="The database of the table; {database} and {table} are replaced.",
    )
    table: str = Field(
        default="{table}", description="The table's name there; {database} and {table} are replaced."
    )
    create: bool = Field(default=True, description="Make missing databases, tables and columns.")
    truncate: bool = Field(default=True, description="Whether TRUNCATE removes the table's rows.")
    drop_tables: bool = Field(default=False, description="Whether DROP TABLE removes the table's rows.")
    epoch: int = Field(
        default=0,
        ge=0,
        le=100,
        description="One more: what is written from now on wins over all that is there.",
    )
    topic_again: dict[str, list[str]] = Field(
        default={},
        description="Id of a topic that is live again, after a fail-over to another cluster and back -> the "
        "ids that it follows.",
    )
    settings: dict[str, str | int | float | bool] = Field(
        default={},
        description="ClickHouse's settings of each query and insert, such as insert_quorum: auto.",
    )
    max_bytes: PositiveSize = size("32MiB", "Of one insert; a larger row goes alone.")
    timeout: PositiveDuration = duration("5m", "How long to wait for a connection, and for an answer.")

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        return server_url(url, "a URL such as https://HOST:8443, without user, password and query")

    @field_validator("username", "password")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        return header_text(value)

    @field_validator("settings")
    @classmethod
    def _settings_are_not_ours(
        cls, settings: dict[str, str | int | float | bool]
    ) -> dict[str, str | int | float | bool]:
        for name in settings:
            if name in OWN_SETTINGS or not re.fullmatch(r"[a-z0-9_]+", name) or name in ("query", "password"):
                raise ValueError(f"{name} cannot be set: no setting, or binlane needs its own value")
        return settings

    @field_validator("database", "table")
    @classmethod
    def _is_a_template(cls, text: str) -> str:
        try:
            Template(text, row=False)
        except TemplateError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        fields = [*Template(self.database, row=False).fields, *Template(self.table, row=False).fields]
        if not any(field.kind == "table" for field in fields):
            raise ValueError("every table would have the same place: table needs {table}")
        return self
