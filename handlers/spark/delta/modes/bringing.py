"""The segments that one commit merges into a Delta table, and rows that are appended to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import left, lit
from pyspark.sql.types import StructType

from handlers.api import Rejected
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.delta.evolving import spark_schema
from handlers.spark.delta.log_files import has_commits
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.stores.interface import Files
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Mode, Shape, log_schema
from handlers.spark.table_ref import MADE, TableRef, literal, new_table, of_new_table, quoted

NUMBER = "_binlane_segment"
"""The column with the segment's number."""


@dataclass(frozen=True, slots=True)
class Bringing:
    """Consecutive segments of one shape."""

    ref: TableRef
    segments: Sequence[Segment]
    shape: Shape
    note: CommitNote
    after: int = 0
    """The last segment that the table is known to contain."""

    @property
    def is_partial(self) -> bool:
        """Whether a row lacks some columns."""
        return any(segment.partial for segment in self.segments)

    def rows(self, session: SparkSession, mode: Mode, prefix: str) -> DataFrame:
        """The segments' rows, each with its segment's NUMBER."""
        schema = spark_schema(log_schema(self.shape, mode=mode, prefix=prefix))
        frame = session.read.schema(schema).parquet(*(segment.path for segment in self.segments))
        # The source may have a column `_metadata`, too.
        name = frame.metadataColumn("_metadata").getField("file_name")
        return frame.select("*", left(name, lit(20)).cast("bigint").alias(NUMBER))


_FIRST = "binlane_first"


def save(frame: DataFrame, ref: TableRef, options: SparkOptions) -> None:
    """Append the rows in one commit, within `fenced`. Raises MergeConflict if another writer has just created
    the table, and what Spark raises."""
    if not exists(frame.sparkSession, ref):
        _make(frame, ref, options)
        return
    table = frame.sparkSession.table(ref.sql).schema
    fitted = frame.selectExpr(*(f"{value} AS {quoted(name)}" for name, value in _values(table, frame.schema)))
    writer = fitted.write.format("delta").mode("append")
    if ref.path is None:
        writer.saveAsTable(ref.sql)
    else:
        writer.save(ref.path)


def _values(table: StructType, rows: StructType, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field's name, and SQL for its value in the table's type. It may be wider (see `evolve`), and
    Delta appends no other. `inside`: the struct with these fields, and a point."""
    types = {field.name.lower(): field.dataType for field in table.fields}
    for field in rows.fields:
        own, value = field.dataType, inside + quoted(field.name)
        wanted = types.get(field.name.lower(), own)
        if isinstance(wanted, StructType) and isinstance(own, StructType) and wanted != own:
            parts = [f"{literal(name)}, {one}" for name, one in _values(wanted, own, f"{value}.")]
            yield field.name, f"IF({value} IS NULL, NULL, named_struct({', '.join(parts)}))"
        else:
            yield field.name, value if wanted == own else f"CAST({value} AS {wanted.simpleString()})"


def _make(frame: DataFrame, ref: TableRef, options: SparkOptions) -> None:
    """Create the table with all its properties at once. If a second commit set them, a worker that died
    before it would leave them out permanently."""
    session = frame.sparkSession
    schema = ref.sql.rpartition(".")[0]
    if ref.path is None and schema:
        session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    made = MADE if options.mode == "replica" else {}
    properties = of_new_table(frame.columns, options.properties) | made
    frame.createOrReplaceTempView(_FIRST)
    layout = options.partition_by, properties
    table = new_table(ref, dict(frame.dtypes), "", *layout, cluster_by=options.cluster_by)
    sql = f"{table} AS SELECT * FROM {_FIRST}"
    try:
        session.sql(f"CREATE {sql}")
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_ALREADY_EXISTS":
            raise
        if exists(session, ref):
            raise MergeConflict(f"{ref}: another writer has just created it") from error
        # A folder without a version, which a failed attempt left.
        session.sql(f"CREATE OR REPLACE {sql}")


def check_free(files: Files, path: str) -> None:
    """Delta would create a table around existing files, and VACUUM would remove them. Raises Rejected."""
    found = [each.name for each in files.list(path) if not each.name.startswith(("_", "."))]
    if found and not has_commits(files, path):  # another worker may have made it since
        raise Rejected(
            f"{path} contains files ({min(found)} ...) that are not a Delta table: move them away, or give "
            "the handler another path"
        )
