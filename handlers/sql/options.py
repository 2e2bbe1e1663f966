"""The options of the `sql` handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from handlers.mysql.ddl.rules import DDLRules
from handlers.options.section import HistoryOptions
from handlers.options.values import PositiveDuration, Shaped, duration
from handlers.sql.naming import check_template
from handlers.sql.target.engine import check_url

_Template = Annotated[str, Field(min_length=1), AfterValidator(check_template)]


def _usable(url: str) -> str:
    check_url(url)
    return url


class SqlOptions(HistoryOptions):
    """The keys of a `type: sql` entry."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(min_length=1, repr=False), AfterValidator(_usable)]
    """The target: postgresql://user:password@host/database, mysql://..., mariadb://..., sqlite:///file or
    duckdb:///file (relative to the configuration file's folder)."""
    schema_: _Template | None = Field(default=None, alias="schema")
    """The target's schema (MySQL: database); {database} and {table} are replaced. Default: {database}; SQLite
    has none."""
    table: _Template | None = None
    """The target's table; {database} and {table} are replaced. Default: {table}; SQLite:
    {database}.{table}."""
    create: bool = True
    """Create missing schemas, tables and columns from the source's types."""
    new_columns: Literal["add", "ignore", "refuse"] | None = None
    """What happens to a row's column that the target's table lacks. Default: add if create and
    ddl.add_columns are true, else refuse."""
    without_key: Literal["match", "append", "refuse"] = "match"
    """Tables without a primary key. `match`: an update or delete changes one row that equals the old one.
    `append`: rows are only inserted, updates and deletes are rejected. `refuse`: all changes are rejected."""
    ddl: DDLRules = Field(default=DDLRules.model_validate({}))
    """Which DDL of the source is followed."""
    marks_table: Annotated[str, Shaped(r"^[^.]+(\.[^.]+)?$", "a table, or schema.table")] = "binlane_marks"
    """The table, or schema.table, with the marks: the positions of applied changes."""
    topic_again: dict[str, list[str]] = Field(default={})
    """Id of a topic that is in use again after a fail-over to another cluster and back -> the ids that it
    follows."""
    pool_size: int | None = Field(default=None, ge=1, le=1000)
    """The most connections. Default: one for each lane, at most 32."""
    timeout: PositiveDuration = duration("10m")
    """The longest time of one statement, DDL included."""

    @model_validator(mode="before")
    @classmethod
    def _not_the_tables(cls, given: Any) -> Any:
        for key in ("deletes", "deleted_column"):
            if isinstance(given, Mapping) and key in given:
                raise ValueError(
                    f"{key} is no longer an option of sql: set it beside handlers, for all of them"
                )
        return given

    @model_validator(mode="after")
    def _places(self) -> Self:
        url = check_url(self.url)
        backend = url.get_backend_name()
        if backend == "sqlite" and (self.schema_ is not None or "." in self.marks_table):
            raise ValueError("SQLite has no schemas; use table, as in table: '{database}_{table}'")
        if backend == "mysql" and not url.database and "." not in self.marks_table:
            raise ValueError("the URL names no database: add one, or write marks_table as database.table")
        return self

    @property
    def unknown_columns(self) -> Literal["add", "ignore", "refuse"]:
        """The value of `new_columns`, or its default."""
        if self.new_columns is not None:
            return self.new_columns
        return "add" if self.create and self.ddl.add_columns else "refuse"
