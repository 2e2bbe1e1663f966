"""The rules of tables: their handlers and batches, and what happens when handling fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from handlers.options.matching import folded, is_name, lowered, table_matcher
from handlers.options.shared import Section
from handlers.options.values import (
    Duration,
    PositiveDuration,
    PositiveSize,
    TablePattern,
    duration,
    not_allowed,
    size,
)
from worker.column_rules.filters import read_filter
from worker.column_rules.settings import ColumnRules, Expectation, FilterText
from worker.column_rules.transforms import Transform, TransformChoice

if TYPE_CHECKING:
    from worker.column_rules.judging import Expectations
    from worker.column_rules.row_rules import RowRules
    from worker.column_rules.statements import StatementRules

OnFailure = Literal["halt", "skip", "dead_letter"]
HANDLER_KEYS = ("type", "name", "limit")
"""The keys of a handler's entry that are no options of the handler."""


class BatchRule(Section):
    """The size of a batch."""

    max_records: int = Field(default=1000, ge=1)
    """The most Kafka records in a batch."""
    max_bytes: PositiveSize = size("16MiB")
    """The most bytes of a batch's records. A larger record becomes a batch by itself."""
    max_wait: Duration = duration("0s")
    """How long the first record may wait for more; 0s: take the records that are available."""

    transactions: Literal["split", "whole"] = "split"
    """whole: no batch ends within a source transaction that fits into one. If its end is not known, it waits
    for the rest, at most max_wait (1s if that is 0s)."""

    def over(self, default: BatchRule) -> BatchRule:
        """Return this rule, with missing keys taken from `default`."""
        return default.model_copy(update={key: getattr(self, key) for key in self.model_fields_set})


class RetryRule(Section):
    """When a failed batch is retried: after initial_delay, then each time multiplier times later."""

    max_attempts: Annotated[int, Field(ge=1)] | None = 10
    """The number of attempts, including the first; null: unlimited."""
    initial_delay: Duration = duration("100ms")
    """The delay before the second attempt."""
    max_delay: Duration = duration("30s")
    """The longest delay between two attempts."""
    multiplier: float = Field(default=2.0, ge=1)
    """The factor by which each delay is longer than the previous one."""
    jitter: float = Field(default=0.2, ge=0, le=1)
    """Each delay is randomly longer or shorter by up to this share."""


def _open_schema(schema: dict[str, Any]) -> None:
    """In a file, options are written beside type and name, with any key."""
    del schema["properties"]["options"]
    schema["additionalProperties"] = True


class LimitRule(Section):
    """How much a handler may ask of its target, for all its tables and lanes of this worker together."""

    calls: Annotated[int, Field(ge=1)] | None = None
    """The most calls that run at once; null: as many as there are lanes."""
    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    """The most rows in a second. A larger batch is passed whole, and others then wait longer; null: no
    limit."""


class HandlerEntry(Section):
    """One handler of a table."""

    model_config = ConfigDict(json_schema_extra=_open_schema)

    type: str = Field(min_length=1)
    """The name of a built-in handler, or an import path such as my_package.module:MyHandler."""
    name: str = Field(default_factory=lambda data: str(data.get("type", "")), min_length=1)
    """The handler's name in metrics; default: the type."""
    limit: LimitRule | None = None
    """How many calls may run at once, and how many rows may go to the target in a second; null: no limit."""
    options: dict[str, Any] = Field(default={})
    """All other keys."""

    def is_like(self, other: HandlerEntry) -> bool:
        """Whether the same open handler can serve both. Their limits may differ."""
        return (self.type, self.name, self.options) == (other.type, other.name, other.options)


def _with_options(entry: object) -> object:
    if isinstance(entry, HandlerEntry):
        return entry
    if not isinstance(entry, Mapping):
        raise not_allowed("a mapping with the handler's type and options, such as {type: log}")
    own = {key: entry[key] for key in HANDLER_KEYS if key in entry}
    return {**own, "options": {str(key): value for key, value in entry.items() if key not in own}}


_PLACES = {"sql": ("table",), "redis": ("key",), "kafka": ("topic",), "spark": ("table", "path")}
"""Handler's type -> options that may put tables of all names in one place."""


class TableRule(Section):
    """What is done with the tables that match a pattern."""

    match: TablePattern
    """A glob on database.table (shop.*), or /regular expression/; the whole name must match."""
    handlers: list[Annotated[HandlerEntry, BeforeValidator(_with_options)]] = Field(min_length=1)
    """All handlers run in parallel on the same batch, and all must finish."""
    batch: BatchRule = Field(default_factory=BatchRule)
    """Missing keys have the values of the top-level `batch`."""
    retry: RetryRule = Field(default_factory=RetryRule)
    """When a failed batch is retried."""
    on_failure: OnFailure = "halt"
    """What happens when all attempts have failed."""
    slow_after: PositiveDuration = duration("60s")
    """A handler's call that takes longer is logged, with the stack of its thread."""
    columns: ColumnRules = Field(default_factory=ColumnRules)
    """Which columns all handlers of the table receive, with which names and in which form."""
    filter: FilterText = None
    """A condition on the row, like SQL's WHERE. Handlers do not receive other rows."""
    transform: TransformChoice = None
    """A function of yours that row changes pass after filter and before columns; null: none."""
    deletes: Literal["apply", "mark", "ignore"] = "apply"
    """How handlers see deletes. mark: as an update that sets deleted_column; ignore: not at all."""
    deleted_column: str = Field(default="deleted_at", min_length=1)
    """The column that deletes: mark sets; null in rows that are not deleted."""
    expect: dict[Annotated[str, Field(min_length=1)], Expectation] = Field(default={})
    """Name -> a condition that each row should meet, or {check: a condition, on_failure: warn}."""
    ghost_tables: bool = True
    """With columns, filter, transform or deletes: ghost tables of gh-ost and pt-online-schema-change (_X_gho,
    _X_new, _X_del, _X_old) get the rule of table X. Other rules that match them do not apply."""

    _expectations: Expectations | None = PrivateAttr(default=None)
    _row_rules: RowRules | None = PrivateAttr(default=None)
    _statement_rules: StatementRules | None = PrivateAttr(default=None)
    _secret: str | None = PrivateAttr(default=None)
    _transforming: Transform | None = PrivateAttr(default=None)
    _folder: Path = PrivateAttr(default=Path())

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: it makes the column rules again, and `Configuration` those of statements."""
        return _made_again, (self.model_fields_set, dict(self.__dict__), self._secret, self._folder)

    @model_validator(mode="after")
    def _marks_have_a_place(self) -> Self:
        for entry in self.handlers:
            if (
                self.deletes == "mark"
                and entry.type == "sql"
                and entry.options.get("new_columns") == "ignore"
            ):
                raise ValueError(
                    "deletes: mark sets a column, but new_columns: ignore leaves it out if the target lacks "
                    "it: set new_columns to add or refuse, and choose columns with columns.include"
                )
        return self

    @model_validator(mode="after")
    def _expects_what_is_there(self) -> Self:
        if self.expect and self.transform is not None:
            raise ValueError("expect checks rows before transform: let the function check its results")
        for name, rule in self.expect.items():
            for column in read_filter(rule.check).columns:
                marks = self.deletes == "mark" and folded(column) == folded(self.deleted_column)
                if not marks and (why := self.columns.unseen(column)):
                    raise ValueError(
                        f"expect: {name} names {column}, {why}: rows are judged as handlers get them"
                    )
        return self

    def ruled(self, secret: str | None) -> Self:
        """Return a copy with its column rules ready. Raises ValueError for a hash without a secret."""
        own = self.model_copy()
        if self.expect:
            from worker.column_rules.judging import Expectations  # noqa: PLC0415 - few tables have any

            own._expectations = Expectations(
                self.expect, self.deleted_column if self.deletes == "mark" else None
            )
        if not self.columns.is_empty or self.filter is not None or self.deletes != "apply":
            from worker.column_rules.row_rules import RowRules  # noqa: PLC0415 - as StatementRules in `model`

            own._row_rules = RowRules(
                self.columns,
                filter_=None if self.filter is None else read_filter(self.filter),
                deletes=self.deletes,
                deleted_column=self.deleted_column,
                marks_all=all(entry.type == "sql" for entry in self.handlers),
                secret=secret,
                table=self.match if is_name(self.match) and self.transform is None else None,
                in_two=self.transform is not None,
            )
            own._secret = secret
        return own.read_from(self._folder)

    def read_from(self, folder: Path) -> Self:
        """Set the folder of the module of `transform`. Return this rule."""
        self._folder = folder
        if self.transform is not None:
            self._transforming = Transform(self.transform, self._row_rules, folder)
        return self

    def among(self, statements: StatementRules | None) -> None:
        """Set the statement rules of all tables; None: no table has any."""
        self._statement_rules = statements

    @property
    def expectations(self) -> Expectations | None:
        """What its rows should meet; None: nothing."""
        return self._expectations

    @property
    def row_rules(self) -> RowRules | None:
        """What is done to the changes before handlers see them; None: nothing."""
        return self._row_rules

    @property
    def transforming(self) -> Transform | None:
        """What applies `transform` and then the column rules when a handler is called; None: nothing."""
        return self._transforming

    @property
    def statement_rules(self) -> StatementRules | None:
        """What is done to DDL statements; None: no table has column rules."""
        return self._statement_rules

    def is_as(self, other: TableRule) -> bool:
        """Whether `other` is the same rule, with the same secret."""
        return self.model_dump() == other.model_dump() and self._secret == other._secret

    def shows_as(self, other: TableRule) -> bool:
        """Whether handlers see a change in the same way by both rules."""
        keys = ("columns", "filter", "transform", "expect", "deletes", "deleted_column")
        return self._secret == other._secret and all(
            getattr(self, key) == getattr(other, key) for key in keys
        )

    @property
    def has_place_per_table(self) -> bool:
        """Whether its handlers keep tables with different names in different places."""
        places = ((entry, key) for entry in self.handlers for key in _PLACES.get(entry.type, ()))
        return all("{table}" in str(entry.options.get(key) or "{table}") for entry, key in places)

    def matches(self, table: str) -> bool:
        """Whether the rule's pattern matches `table` ("database.table")."""
        return table_matcher(self.match)(table)

    def may_match(self, table: str) -> bool:
        """Whether the rule matches `table` as written, or in lower case (statements may use capitals)."""
        return self.matches(table) or self.matches(lowered(table))


def _made_again(given: set[str], fields: dict[str, Any], secret: str | None, folder: Path) -> TableRule:
    return TableRule.model_construct(given, **fields).read_from(folder).ruled(secret)
