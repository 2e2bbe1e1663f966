"""The whole configuration, as the worker uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from handlers.api import HandlerContext
from handlers.mysql.online_changes import replaced_by
from handlers.options.matching import lowered, may_end
from handlers.options.shared import Section
from handlers.options.values import Duration, PositiveDuration, duration
from worker.column_rules.settings import MaskingRule
from worker.configuration import sections
from worker.configuration.document import KeyPath
from worker.configuration.secrets import Secrets
from worker.configuration.table_rules import BatchRule, HandlerEntry, OnFailure, TableRule
from worker.configuration.values import FormatChoice
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.gathered import DatabasesRule, Places
from worker.formats.own_json.layout import JsonLayout
from worker.formats.schema_registry.settings import SchemaRegistrySettings

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules


class Configuration(Section):
    """The configuration of one worker. Times are seconds, sizes are bytes.

    `load` reads it from a file. `Configuration.model_validate` accepts a mapping of the same shape, and also
    numbers as seconds and bytes."""

    kafka: sections.KafkaRule
    """The source of the change records."""
    name: str = Field(default_factory=lambda data: str(data["kafka"].group_id), min_length=1)
    """The name in logs, the status page and marks of `sql`, the same in a group; default: the group id."""
    format: FormatChoice = Field(default="canal")
    """The format of the records, or a mapping of topics (names, or ^expressions) to formats."""
    json_layout: JsonLayout | None = Field(default=None, alias="json", validate_default=True)
    """The layout of records of the format json."""
    debezium: DebeziumSettings = Field(default_factory=DebeziumSettings)
    """Facts about Debezium records that the records themselves do not contain."""
    schema_registry: SchemaRegistrySettings | None = None
    """The schema registry for Debezium records that refer to their schema by an id; null: records contain
    their schema, or have none."""
    databases: dict[Annotated[str, Field(min_length=1)], DatabasesRule] = Field(default={})
    """Name of a database -> the tables that are handled as its tables. The first match counts."""
    lanes: sections.LanesRule = Field(default_factory=sections.LanesRule)
    """Settings of the lanes, which handle batches in parallel."""
    batch: BatchRule = Field(default_factory=BatchRule)
    """The default size of a batch."""
    checkpoint: sections.CheckpointRule = Field(default_factory=sections.CheckpointRule)
    """How positions are stored."""
    start_timeout: PositiveDuration = duration("5m")
    """The longest time for opening the handlers; a worker that takes longer exits with code 1."""
    shutdown_timeout: Duration = duration("30s")
    """How long a stop waits for running batches."""
    revoke_timeout: Duration = duration("10s")
    """How long a rebalance waits for the running batches of revoked partitions."""
    stuck_after: PositiveDuration = duration("5m")
    """How long the same record may be the first unfinished one of its partition before that is reported."""
    max_ahead: int = Field(default=1_000_000, ge=1)
    """The most records of a partition that are fetched after its first unfinished one. At this limit the
    partition is paused until that record is finished."""
    tables: list[TableRule] = Field(min_length=1)
    """The first match wins. Records of an unmatched table are counted as skipped and are finished."""
    masking: MaskingRule = Field(default_factory=MaskingRule)
    """Settings shared by the masks of all tables."""
    dead_letter: sections.DeadLetterRule | None = None
    """The topic for records that cannot be handled; null: no such topic."""
    on_undecodable: OnFailure = Field(
        default_factory=lambda data: "dead_letter" if data.get("dead_letter") else "halt"
    )
    """What happens to an undecodable record; default: dead_letter when its topic is set, else halt."""
    http: sections.HttpRule | None = Field(default_factory=sections.HttpRule)
    """The HTTP server for status, probes and metrics; null: no server."""
    logging: sections.LoggingRule = Field(default_factory=sections.LoggingRule)
    """What is logged, and in which format."""
    tracing: sections.TracingRule | None = None
    """Spans of handled batches, sent to a collector; null: no tracing. Needs the extra `otel`."""
    spark: dict[str, Any] = Field(default={})
    """Settings of Spark: see the Spark handler."""

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
            # Imported here because it imports the DDL parser, which only column rules need.
            from worker.column_rules.statements import StatementRules  # noqa: PLC0415

            statements = StatementRules(
                partial(_row_rules_of, complete, Places(self.databases)), partial(_any_rules_of, complete)
            )
            for table in complete:
                table.among(statements)
        # The model is frozen for others; validation is not finished yet.
        object.__setattr__(self, "tables", complete)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which does not get the texts to redact."""
        return _made_again, (dict(self.__dict__), self.model_fields_set, self._path)

    @property
    def path(self) -> Path:
        """The file of this configuration."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder of the file. Relative paths and import paths of handlers start here."""
        return self._path.absolute().parent

    @property
    def secrets(self) -> Secrets:
        """All texts that must never be shown. `secrets.redact(text)` replaces them."""
        return self._secrets

    @property
    def hidden(self) -> frozenset[KeyPath]:
        """The paths of values that are never shown, because they are from secret files or variables."""
        return self._hidden

    def read_from(self, path: Path, secrets: Secrets, hidden: frozenset[KeyPath] = frozenset()) -> Self:
        """Set the file, the secrets and the hidden paths. Return this configuration."""
        self._path = path
        self._secrets = secrets
        self._hidden = hidden
        for table in self.tables:
            table.read_from(self.folder)
        return self

    def context_for(self, entry: HandlerEntry, **more: Any) -> HandlerContext:
        """Say where this handler runs. `more`: further fields."""
        own: dict[str, Any] = {
            "folder": self.folder,
            "start_timeout": self.start_timeout,
            "spark": self.spark,
        }
        return HandlerContext(worker=self.name, handler=entry.name, **(own | more))

    def rule_for(self, table: str) -> TableRule | None:
        """Return the first rule that matches `table` ("database.table"), or the rule of the table that it
        replaces (see `ghost_tables`). None: the table is skipped."""
        return _rule_of(self.tables, Places(self.databases), table, is_stated=False)

    def handles(self, entry: HandlerEntry, table: str) -> bool:
        """Whether the rule of this table ("database.table") includes the handler."""
        rule = self.rule_for(table)
        return rule is not None and any(map(entry.is_like, rule.handlers))


def _made_again(values: dict[str, Any], given: set[str], path: Path) -> Configuration:
    made: Any = Configuration.model_construct(given, **values)
    made._complete_tables()
    return made.read_from(path, Secrets())  # type: ignore[no-any-return]


def _rule_of(tables: Sequence[TableRule], places: Places, table: str, *, is_stated: bool) -> TableRule | None:
    """Return the first rule that matches `table`. An online schema change's table contains the same rows as
    the table that it replaces. So it gets the rule of that table, if the rule changes rows.

    `is_stated`: a statement names the table, perhaps in capitals, or before its rows are the other table's.
    """
    matches = TableRule.may_match if is_stated else TableRule.matches
    found = next((rule for rule in tables if matches(rule, table)), None)
    spelled = (table, lowered(table)) if is_stated else (table,) if found is not None else ()
    for name in (places.label(one) for each in spelled for one in replaced_by(each)):
        own = next((rule for rule in tables if matches(rule, name)), None)
        if own is not None and (own.row_rules or own.transform) and own.ghost_tables:
            return own if is_stated or own is found or own.has_place_per_table else None
    return found


def _row_rules_of(
    tables: Sequence[TableRule], places: Places, database: str, table: str
) -> RowRules | Literal["skipped"] | None:
    spelled = ((database, table), (lowered(database), lowered(table)))
    placed = next((own for one in spelled if (own := places.placed(*one)) != one), spelled[0])
    rule = _rule_of(tables, places, ".".join(placed), is_stated=True)
    return "skipped" if rule is None else rule.row_rules


def _any_rules_of(tables: Sequence[TableRule], table: str) -> Iterator[RowRules]:
    """Yield all rules that a table of this name may have in some database, perhaps in lower case."""
    names = {one for name in (table, lowered(table)) for one in (name, *replaced_by(name))}
    for rule in tables:
        if rule.row_rules is not None and any(may_end(rule.match, one) for one in names):
            yield rule.row_rules
