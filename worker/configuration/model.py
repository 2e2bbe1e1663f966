"""The whole configuration, as the worker reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from handlers.mysql.online_changes import replaced_by
from handlers.options.matching import database_of
from handlers.options.section import Section
from handlers.options.values import Duration, PositiveDuration, duration
from worker.column_rules.settings import MaskingRule
from worker.configuration.faults import KeyPath
from worker.configuration.secrets import Secrets
from worker.configuration.sections import (
    CheckpointRule,
    DeadLetterRule,
    HttpRule,
    KafkaRule,
    LanesRule,
    LoggingRule,
    TracingRule,
)
from worker.configuration.table_rules import BatchRule, OnFailure, TableRule
from worker.configuration.values import FormatChoice
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.own_json.layout import JsonLayout
from worker.formats.schema_registry.settings import SchemaRegistrySettings

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules


class Configuration(Section):
    """One worker's configuration. Times are seconds, sizes bytes.

    `load` makes it from a file; `Configuration.model_validate` from a mapping of the same shape, where
    numbers are accepted as seconds and bytes too.
    """

    kafka: KafkaRule
    """Where the change records come from."""
    name: str = Field(default_factory=lambda data: str(data["kafka"].group_id), min_length=1)
    """The worker's name in logs and on the status page; default: the group id."""
    format: FormatChoice = Field(default="canal")
    """The format of the records, or a mapping of topics (names, or ^expressions) to formats."""
    json_layout: JsonLayout | None = Field(default=None, alias="json", validate_default=True)
    """Where records of the format json hold what."""
    debezium: DebeziumSettings = Field(default_factory=DebeziumSettings)
    """What records of the format debezium do not say of themselves."""
    schema_registry: SchemaRegistrySettings | None = None
    """Where the schemas of Debezium's records are that name theirs by an id; null: they hold their own, or
    none."""
    lanes: LanesRule = Field(default_factory=LanesRule)
    """How records are handled side by side."""
    batch: BatchRule = Field(default_factory=BatchRule)
    """How much a handler is given at once, by default."""
    checkpoint: CheckpointRule = Field(default_factory=CheckpointRule)
    """How the position is kept."""
    start_timeout: PositiveDuration = duration("5m")
    """How long the handlers may take to open; a worker that takes longer ends with exit code 1."""
    shutdown_timeout: Duration = duration("30s")
    """How long a stop waits for what runs."""
    revoke_timeout: Duration = duration("10s")
    """How long a rebalance waits for running batches of the partitions that leave."""
    stuck_after: PositiveDuration = duration("5m")
    """How long a partition's first unfinished record may stay the first before that is reported."""
    max_ahead: int = Field(default=1_000_000, ge=1)
    """So many records of a partition are fetched since its first unfinished one; then it is paused until that
    one is finished."""
    tables: list[TableRule] = Field(min_length=1)
    """The first match wins; an unmatched table is counted as skipped and finished."""
    masking: MaskingRule = Field(default_factory=MaskingRule)
    """What masks of all tables share."""
    dead_letter: DeadLetterRule | None = None
    """Where records go that cannot be handled; null: nowhere."""
    on_undecodable: OnFailure = Field(
        default_factory=lambda data: "dead_letter" if data.get("dead_letter") else "halt"
    )
    """What happens to an undecodable record; default: dead_letter when its topic is set, else halt."""
    http: HttpRule | None = Field(default_factory=HttpRule)
    """Where status, probes and metrics are served; null: nowhere."""
    logging: LoggingRule = Field(default_factory=LoggingRule)
    """What is logged, and how it looks."""
    tracing: TracingRule | None = None
    """Spans of what is handled, told to a collector; null: none. Needs the extra `otel`."""
    spark: dict[str, Any] = Field(default={})
    """See the Spark handler."""

    _path: Path = PrivateAttr(default=Path("binlane.yaml"))
    _secrets: Secrets = PrivateAttr(default_factory=Secrets)
    _hidden: frozenset[KeyPath] = PrivateAttr(default=frozenset())

    @field_validator("json_layout")
    @classmethod
    def _layout_of_json(cls, layout: JsonLayout | None, info: ValidationInfo) -> JsonLayout | None:
        formats = info.data.get("format", "")
        used = formats.values() if isinstance(formats, dict) else (formats,)
        if layout is None and "json" in used:
            raise PydanticCustomError("missing", "missing", {"when": "with format: json"})
        return layout

    @model_validator(mode="after")
    def _complete_tables(self) -> Self:
        complete = []
        for number, table in enumerate(self.tables):
            unkeyed = None if self.masking.secret else next(table.columns.unkeyed, None)
            if unkeyed is not None:
                raise PydanticCustomError(
                    "unkeyed",
                    "hash needs a secret: set masking.secret, or {hash: {secret: ...}}",
                    {"below": ("tables", number, "columns", "mask", unkeyed)},
                )
            ruled = table.ruled(self.masking.secret)
            complete.append(ruled.model_copy(update={"batch": table.batch.over(self.batch)}))
        if any(table.row_rules is not None for table in complete):
            # With it comes the reader of DDL: only whoever has rules waits for its import.
            from worker.column_rules.statements import StatementRules  # noqa: PLC0415

            databases = [name for table in complete if (name := database_of(table.match)) is not None]
            statements = StatementRules(partial(_row_rules_of, complete), databases)
            for table in complete:
                table.among(statements)
        # Frozen for everybody else; validation is still under way.
        object.__setattr__(self, "tables", complete)
        return self

    @property
    def path(self) -> Path:
        """The file it was read from."""
        return self._path

    @property
    def folder(self) -> Path:
        """The file's own folder: where relative paths of handlers and their import paths start."""
        return self._path.absolute().parent

    @property
    def secrets(self) -> Secrets:
        """What must never be shown; `secrets.redact(text)` takes it out of a text."""
        return self._secrets

    @property
    def hidden(self) -> frozenset[KeyPath]:
        """The paths of values that came from elsewhere and must not be shown, whatever they are."""
        return self._hidden

    def read_from(self, path: Path, secrets: Secrets, hidden: frozenset[KeyPath] = frozenset()) -> Self:
        """This configuration, knowing its file, its secrets, and where values stand that are not shown."""
        self._path = path
        self._secrets = secrets
        self._hidden = hidden
        return self

    def rule_for(self, table: str) -> TableRule | None:
        """The first rule that matches `table` ("database.table"), or the table that it replaces (see
        `ghost_tables`); None: the table is skipped."""
        return _rule_of(self.tables, table)


def _rule_of(tables: Sequence[TableRule], table: str, *, is_stated: bool = False) -> TableRule | None:
    """The first rule that matches `table`. The tables of an online schema change have the rule of the table
    that they replace if its rows leave by rules: theirs are its rows.

    `is_stated`: a statement names it, in capitals perhaps, or before its rows become the other table's."""
    matches = TableRule.may_match if is_stated else TableRule.matches
    found = next((rule for rule in tables if matches(rule, table)), None)
    for name in replaced_by(table) if is_stated or found is not None else ():
        own = next((rule for rule in tables if matches(rule, name)), None)
        if own is not None and own.row_rules is not None and own.ghost_tables:
            return own
    return found


def _row_rules_of(tables: Sequence[TableRule], table: str) -> RowRules | Literal["skipped"] | None:
    rule = _rule_of(tables, table, is_stated=True)
    return "skipped" if rule is None else rule.row_rules
