"""The keys of a `type: spark` entry, and of the `spark:` section: all handlers of a worker share a Spark."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from handlers.mysql.ddl.rules import DDLRules
from handlers.options.shared import Options
from handlers.options.values import Duration, PositiveDuration, PositiveSize, Shaped, duration, size
from handlers.spark.rows.spark_types import read_spark_type

_LONGEST_CYCLE = 5.0
"""Seconds: half of the time that a rebalance waits for running batches by default."""
_FIELDS = ("database", "table")
PARTITION = re.compile(
    r"(?i)(?:(year|month|day|hour)s?\(|(bucket|truncate)\(\s*0*([1-9]\d{0,8})\s*,)\s*([^()]+?)\s*\)|([^()]+)"
)
"""A column, or Iceberg's transform of one: days(created_at), bucket(16, id)."""
_NAME_PART = re.compile(r"^[^.`]+(\.[^.`]+){0,2}$")


def _template(text: str, kind: str) -> str:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a template: {error}") from None
    for field in fields:
        if field not in _FIELDS:
            raise ValueError(f"{{{field}}} is unknown in a {kind}; allowed: {{database}}, {{table}}")
    if "table" not in fields:
        raise ValueError(f"a {kind} needs {{table}}: each source table has its own table")
    if re.search(r"[?*\[\]]", text):
        raise ValueError(f"a {kind} must not contain ? * [ ]: Spark would read them as a pattern")
    return text


def _catalog_table(text: str) -> str:
    if not _NAME_PART.match(_template(text, "table")):
        raise ValueError(f"{text!r} is not a catalog table: write [catalog.][schema.]table")
    return text


_Path = Annotated[str, Field(min_length=1), AfterValidator(partial(_template, kind="path"))]
_Table = Annotated[str, Field(min_length=1), AfterValidator(_catalog_table)]


class MergeOptions(Options):
    """When received changes are merged into the table. Until then, they are kept durably beside the table."""

    engine: Literal["auto", "spark"] = "auto"
    """Who makes commits. `auto`: binlane in its own process, if the commit is small and the table is plain.
    It costs hundredths of a second there, and one or two seconds in Spark. `spark`: always Spark."""
    max_age: Duration | None = None
    """How long the oldest change waits for a merge. Default: 2s to 10s. This is 20 times as long as a
    merge takes, and 2s for each MiB of files that it replaced. The shorter of the last two merges counts."""
    max_rows: PositiveInt = 200_000
    """This number of waiting rows is merged at once."""
    max_bytes: PositiveSize = size("128MiB")
    """The most bytes of log files in one merge. Halved after a merge that failed or that killed Java, until
    nothing waits."""
    max_waiting: PositiveSize = size("1GiB")
    """The most bytes that may wait for one table. Beyond it, its batches wait for Spark."""
    keep: Duration = duration("1m")
    """How long views read merged segments, and how long their files stay after that. New columns and DDL
    remove them at once."""
    at_close: Duration = duration("10s")
    """How long a stopping worker keeps its partitions and merges."""


class UpkeepOptions(Options):
    """Delta's own upkeep. 0s: never."""

    optimize_every: Duration = duration("1h")
    """How often small files are rewritten as larger ones."""
    min_files: PositiveInt = 16
    """OPTIMIZE skips tables with fewer files."""
    vacuum_every: Duration = duration("24h")
    """How often files that no version needs are removed."""
    retention: PositiveDuration = duration("168h")
    """How long VACUUM keeps files that old versions need."""


class SparkOptions(Options):
    """The keys of a `type: spark` entry."""

    mode: Literal["replica", "history", "changelog", "function"]
    """`replica`: the source's rows. `history`: every version of each row, with its period of validity.
    `changelog`: every change as a row. `function`: your own function gets each batch as a DataFrame."""
    format: Literal["delta", "parquet", "iceberg"] = "delta"
    """delta. parquet: plain files, for mode changelog. iceberg: tables of the catalog in `spark.iceberg`,
    written without Spark. Needs the package pyiceberg."""
    path: _Path | None = None
    """The table's location; {database} and {table} are replaced. Default: {database}/{table} in the
    warehouse."""
    table: _Table | None = None
    """Instead of a path: a table in a catalog, such as lake.{database}.{table}. Default for Iceberg:
    {database}.{table}."""
    prefix: Annotated[
        str, Shaped(r"^[A-Za-z_][A-Za-z0-9_]*$", "the beginning of a name, such as _ or cdc_")
    ] = Field(default_factory=lambda given: "cdc_" if given.get("format") == "iceberg" else "_")
    """Prefix of the columns that binlane adds (_op, _valid_from ...). Spark reads no Iceberg table with a
    column _partition. Default: _, and cdc_ for Iceberg."""
    columns: dict[str, str] = Field(default={})
    """Column -> Spark type, such as {price: 'decimal(12,2)'}. Overrides the source's type."""
    without_key: Literal["match", "refuse"] = "match"
    """Replicas of tables without a primary key. `match`: an update or delete changes one row that equals the
    old one. `refuse`: their changes are rejected."""
    ddl: DDLRules = Field(default=DDLRules.model_validate({}))
    """Which DDL of the source is followed."""
    merge: MergeOptions = Field(default_factory=lambda: MergeOptions.model_validate({}))
    """When changes are merged."""
    upkeep: UpkeepOptions = Field(default_factory=lambda: UpkeepOptions.model_validate({}))
    """Delta's own upkeep."""
    shared_segments: Duration = duration("0s")
    """How often small batches of all tables are written as one shared file. For thousands of tables, or if
    requests cost money. 0s: each batch at once, in its own file."""
    partition_by: list[str] = Field(default=[])
    """Partition columns of a new table. For Iceberg also transforms: days(created_at), bucket(16, id)."""
    cluster_by: list[str] = Field(default=[], max_length=4)
    """Clustering columns of a new table, instead of partition columns."""
    properties: dict[str, str | int | float | bool] = Field(default={})
    """Table properties of a new table, such as delta.enableDeletionVectors."""
    topic_again: dict[str, list[str]] = Field(default={})
    """Id of a topic that is in use again after a fail-over to another cluster and back -> the ids that it
    follows."""
    function: Annotated[str, Shaped(r"^[\w.]+:[A-Za-z_]\w*$", "package.module:function")] | None = None
    """With mode: function, package.module:function. It is called as f(frame, batch)."""

    @field_validator("columns")
    @classmethod
    def _types_of_spark(cls, columns: dict[str, str]) -> dict[str, str]:
        for column, type_text in columns.items():
            try:
                read_spark_type(type_text)
            except ValueError as error:
                raise ValueError(f"{column}: {error}") from None
        lowered = [column.lower() for column in columns]
        for column in columns:
            if lowered.count(column.lower()) > 1:
                raise ValueError(f"{column} is listed twice: Spark's names ignore case")
        return columns

    @field_validator("properties")
    @classmethod
    def _remembers(cls, properties: dict[str, object]) -> dict[str, object]:
        if (forgets := "delta.setTransactionRetentionDuration") in properties:
            raise ValueError(f"remove {forgets}: Delta would forget which segments a table has")
        return properties

    @field_validator("shared_segments")
    @classmethod
    def _soon(cls, seconds: float) -> float:
        if seconds > _LONGEST_CYCLE:
            raise ValueError(
                f"found {seconds:g} s; allowed: up to {_LONGEST_CYCLE:g} s, because batches wait for it, and "
                "a rebalance and a stop wait for batches"
            )
        return seconds

    @property
    def catalog_table(self) -> str | None:
        """The template of the table's name in a catalog. None for a table at a path."""
        return self.table or ("{database}.{table}" if self.format == "iceberg" else None)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.format == "iceberg":
            self._check_iceberg()
        self._check_partitions()
        if self.format == "parquet" and self.mode != "changelog":
            raise ValueError(f"format parquet is for mode changelog: a {self.mode} needs format delta")
        if self.format == "parquet" and self.table is not None:
            raise ValueError("format parquet has a path, not a table")
        if self.path is not None and self.table is not None:
            raise ValueError("give path or table, not both")
        is_merged = self.format != "iceberg" and self.mode != "changelog"
        if is_merged and any({".", "`"} & set(column) for column in self.partition_by):
            raise ValueError("partition_by: Delta cannot merge by a column with . or ` in its name")
        if self.cluster_by and (self.partition_by or self.format != "delta"):
            raise ValueError("cluster_by is for tables of format delta without partition_by")
        if (self.mode == "function") != (self.function is not None):
            raise ValueError("mode function and the key function need each other")
        return self

    def _check_iceberg(self) -> None:
        if find_spec("pyiceberg") is None:
            raise ValueError("pyiceberg is not installed: pip install '.[iceberg]' in binlane's folder")
        if self.mode == "function":
            raise ValueError("mode function writes no table, so it has no format")
        if self.path is not None:
            raise ValueError("format iceberg has a table in a catalog, not a path")
        if self.merge.engine == "spark":
            raise ValueError("merge.engine spark is for format delta: PyIceberg commits to Iceberg tables")
        if "." not in (self.catalog_table or ""):
            raise ValueError("format iceberg: write namespace.table, such as {database}.{table}")
        if str(self.properties.get("format-version", 2)) not in ("1", "2"):
            raise ValueError("properties: PyIceberg writes format-version 1 and 2")
        if str(self.properties.get("write.format.default", "parquet")).lower() != "parquet":
            raise ValueError("properties: PyIceberg writes files of write.format.default parquet only")

    def _check_partitions(self) -> None:
        is_iceberg, columns = self.format == "iceberg", set[str]()
        for text in self.partition_by:
            found = PARTITION.fullmatch(text)
            name = text if found is None else found[4] or found[5]
            is_one = found is not None if is_iceberg else name == text
            if not is_one or name.casefold() in columns:
                more = ", years(c), months(c), days(c), hours(c), bucket(N, c), truncate(N, c)"
                raise ValueError(
                    f"{text!r} is no partition, or the second of its column; allowed: a column"
                    + (more if is_iceberg else " (by a part of a value: a generated column)")
                )
            columns.add(name.casefold())


Memory = Annotated[
    str,
    Shaped(
        r"^[1-9][0-9]*[kmgt]$",
        "a size as Java writes it, such as 512m or 2g",
        lambda text: text.replace(" ", "").lower().removesuffix("ib").removesuffix("b"),
    ),
]
Coordinate = Annotated[str, Shaped(r"^[^:\s]+:[^:\s]+:[^:\s]+$", "Maven coordinates, group:artifact:version")]
ConnectAddress = Annotated[
    str,
    Shaped(
        r"^sc://.+",
        "the address of a Spark Connect server, sc://host:port",
        lambda text: f"sc://{text.rpartition('://')[2]}",
    ),
]
_OF_THE_SERVER = ("master", "driver_memory", "packages", "ui", "start")


class SparkSection(Options):
    """Where Spark runs, and where its tables are."""

    master: str = Field(default="local[2]", min_length=1)
    """Spark's master URL: local[N], spark://host:port, yarn, k8s://... The driver runs in the worker's
    pod."""
    remote: ConnectAddress | None = None
    """The address of a Spark Connect server, sc://host:port. Spark runs there, without Java here. The server
    needs Delta's jars, and the worker must reach the warehouse, too."""
    warehouse: str = Field(default="lake", min_length=1)
    """The place of the tables: a URI, or a folder relative to the configuration file's."""
    driver_memory: Memory = "2g"
    """The Java heap, in Spark's form of sizes: 512m, 2g."""
    concurrency: int = Field(default=2, ge=1, le=64)
    """The number of tables that are merged at once."""
    single_writer: bool = False
    """Promises that only one worker at a time writes these tables. Needed for stores in which Delta has no
    safe commits for several writers (S3)."""
    views: bool = False
    """Whether Spark's catalog has a view of each Delta table with its waiting changes: `shop.orders`, or
    `shop.orders_history`. Other programs need the same catalog, such as a Hive metastore."""
    start: Literal["auto", "eager"] = "auto"
    """When Spark starts. `auto`: when a table first needs it. `eager`: at the worker's start."""
    ui: bool = True
    """Spark's web pages while it runs. `binlane status` shows where."""
    packages: list[Coordinate] = Field(default=[])
    """Additional Maven coordinates (group:artifact:version), such as a storage connector."""
    conf: dict[str, str | int | float | bool] = Field(default={})
    """Any other Spark property. Overrides binlane's defaults."""

    iceberg: dict[str, str | int | float | bool] = Field(default={})
    """The catalog of `format: iceberg`: PyIceberg's properties (type, uri, warehouse, credential, s3.endpoint
    ...), and the catalog's name (`name`). Without a type, PyIceberg's own configuration applies."""

    @field_validator("conf")
    @classmethod
    def _only_spark_properties(cls, conf: dict[str, object]) -> dict[str, object]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"{key!r} is not a Spark property: their names begin with 'spark.'")
        if "spark.master" in conf or "spark.driver.memory" in conf:
            raise ValueError("set master and driver_memory beside conf, not in it")
        return conf

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = sorted(self.model_fields_set.intersection(_OF_THE_SERVER))
        if self.remote is not None and given:
            raise ValueError(
                f"with remote, {', '.join(given)} cannot be set here: they belong to the Connect server"
            )
        return self
