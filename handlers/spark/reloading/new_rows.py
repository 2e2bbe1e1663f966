"""The rows of a rebuilt table: where they are built, and the log entry that gives them to the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from handlers.progress import WHOLE, Partition
from handlers.reloading import Behind, CatchUp, Differs, Hindered, Refused, is_behind, told_apart
from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.delta.evolving import TableState, look
from handlers.spark.engine.table.log_end import Entry
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.locations import PENDING
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import REPLACE, Statement, columns_of
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import UnsafeForSeveral, check_store
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.shape import Mode, Shape, added_columns, log_schema
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.table_ref import TableRef

_TOO_FAST = (
    "changes arrive faster than they can be merged: try again when there are fewer, or stop the worker"
)
FOLDER = "_binlane_reload"
"""The folder of new tables, in the folder of all tables. Spark and Delta ignore names that begin with an
underscore."""

_HOUR_MS = 3_600_000
LONGEST_MS = 12 * _HOUR_MS
"""An older new table is no longer put. The next reload treats it as left over much later."""
_LEFT_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class NewRows:
    """The new rows' place, and the records that they contain."""

    new: TableSink
    """The sink of the new table."""
    place: str
    """The new table's place, below the folder of all tables."""
    name: str
    """The unique name of this reload."""
    began_ms: int
    files: Files
    mode: Mode
    prefix: str
    read: Mapping[Partition, int]
    """Next offsets: the changes of all earlier ones are in the new table."""
    catch_up: CatchUp | None

    def entry(self, shape: Shape, marks: Marks) -> Entry:
        """Return the entry for a log with this shape and marks. Raises Behind, Differs, Hindered and
        Refused."""
        read, highest = self.read, marks.highest()
        if is_behind(read, highest) and self.catch_up is not None:
            read = self.catch_up(highest)
        if is_behind(read, highest):
            raise Behind
        if self.new.end.shape != shape:
            raise Differs("its log has other columns than the topic")
        statement = Statement(
            op=REPLACE,
            sql=self.place,
            source_time_ms=self.began_ms,
            topic=self.name,
            partition=0,
            offset=0,
            index=0,
            topics=(self.name,),
            key_before=shape.key,
            key=shape.key,
            columns=columns_of(self._schema(shape)),
        )
        is_partial = any(each.partial for each in self.new.segments)
        return statement, self._rows(shape), is_partial, _moved(marks, self.new.end.tail.marks)

    def _rows(self, shape: Shape) -> pa.Table:
        """Return the rows that arrived since the new table was merged, as one segment. Raises Hindered if
        they do not fit in one: then the table must be merged again."""
        segments = [each for each in self.new.segments if each.rows or each.statement is not None]
        several = len(segments) > 1
        if any(each.statement is not None or (each.partial and several) for each in segments):
            raise Hindered(_TOO_FAST)
        read = []
        for each in segments:
            with self.files.open(each.path) as file:
                read.append(pq.read_table(file))
        if not read:
            return self._schema(shape).empty_table()
        if len(read) == 1:
            return read[0]
        rows = pa.concat_tables(read)
        row = f"{self.prefix}row"
        if row in added_columns(self.mode, self.prefix, keyed=bool(shape.key)):
            # Their order within their segment.
            place = rows.schema.get_field_index(row)
            return rows.set_column(place, row, pa.array(range(len(rows)), rows.schema.field(row).type))
        if self.mode != "replica":
            return rows
        newest = newest_of(rows, shape.key)
        if newest is None:
            raise Hindered(_TOO_FAST)
        return newest

    def _schema(self, shape: Shape) -> pa.Schema:
        return log_schema(shape, mode=self.mode, prefix=self.prefix)


def _moved(there: Marks, new: Marks) -> Marks:
    """Return the marks of the table with the new rows. Raises Refused."""
    for each, topic_id in new.ids.items():
        known = there.ids.get(each)
        ids = {topic_id.current, None if known is None else known.current}
        if None not in ids and len(ids) > 1:
            raise Refused(
                f"the topic {each[0]} was recreated, and no change of the table in the new one was applied "
                "yet: let the worker read that far first"
            )
    highest = there.highest()
    for each, place in new.highest().items():
        highest[each] = max(highest.get(each, place), place)
    known_now = {each: {WHOLE: place} for each, place in highest.items()}
    return Marks(known_now, {**new.ids, **there.ids}, there.letters)


def number_of(there: TableSink, name: str) -> int:
    """Return the number of the entry of this name in a log. 0 if absent. Raises what the store raises."""
    there.load()
    entries = ((each.number, each.statement) for each in there.segments)
    return next((number for number, one in entries if one is not None and one.topic == name), 0)


def check_alike(session: SparkSession, *, there: TableRef, new: TableRef) -> None:
    """Raise Differs or Refused if the table would refuse rows of the new one, because a merge could never
    succeed."""
    table, built = look(session, there), look(session, new)
    if table is None:
        raise Differs(f"there is no table {there}; the next change that a worker applies creates it")
    if built is None:
        raise Differs(f"according to the topic, there is no table {there}")
    declared = Declared.of(table.columns, table.partitions, table.properties, "UTC")
    if declared.is_append_only:
        raise Refused(f"{there} accepts no changes of its rows (delta.appendOnly)")
    told = told_apart(_columns(table), _columns(built))
    if told:
        raise Differs(f"{there} has other columns than the topic: {told}")
    for text in declared.all_conditions(table.columns):
        if not session.table(new.sql).where(f"NOT coalesce({text}, false)").isEmpty():
            raise Refused(f"the topic has rows that {there} does not accept: {text}")


def _columns(table: TableState) -> dict[str, str]:
    return {field.name.casefold(): field.dataType.simpleString() for field in table.columns.fields}


def folder_of(logs: str, log_folder: str) -> str:
    """Return the folder of one log's reloads, below the folder of all tables. Each reload has a folder in it,
    whose name begins with milliseconds since 1970. `logs`: the folder of all logs. (The source table's name
    would not do, because another handler may keep the same table.)"""
    return f"{FOLDER}{log_folder.removeprefix(logs).removesuffix(f'/{PENDING}')}"


def check_place(root: str, spark: SharedSpark) -> None:
    """Raise Refused if several writers are not safe in Delta here, because this Spark is not the worker's."""
    try:
        check_store(root, spark)
    except UnsafeForSeveral:
        raise Refused(
            f"{root} is only safe for one writer, the worker: stop it, and confirm with --alone that none "
            "runs"
        ) from None


def remove_left(files: Files, root: str, folder: str, log: SegmentLog, now_ms: int) -> None:
    """Remove what killed reloads left, if it is so old that none of them continues and no entry of the log
    waits for it. Raises what the store raises, and BrokenLog."""
    waiting = [each.statement.sql or "" for each in log.segments if each.statement is not None]
    for entry in files.list(f"{root}/{folder}"):
        began, _, _ = entry.name.partition("-")
        is_old = began.isdecimal() and int(began) + _LEFT_MS < now_ms
        if is_old and not any(each.startswith(f"{folder}/{entry.name}/") for each in waiting):
            files.delete_tree(f"{root}/{folder}/{entry.name}")
