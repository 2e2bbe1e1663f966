"""The entry of a log by which its table gets the rows of a table that was built again beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from handlers.progress.marks import WHOLE, Partition
from handlers.reloading import Behind, CatchUp, Differs, Hindered, Refused, is_behind
from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.engine.table.log_end import Entry
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.log.marks import Marks
from handlers.spark.log.statement import REPLACE, Statement, columns_of
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.added import Mode, added_columns, log_schema
from handlers.spark.rows.shape import Shape

_TOO_FAST = (
    "changes arrive faster than they can be merged: try again when there are fewer, or stop the worker"
)


@dataclass(frozen=True, slots=True)
class NewRows:
    """Where they are, and of which records."""

    new: TableSink
    """Keeps the new table."""
    place: str
    """Of that table, below the folder of all tables."""
    name: str
    """Of this reload; no other has it."""
    began_ms: int
    files: Files
    mode: Mode
    prefix: str
    read: Mapping[Partition, int]
    """Next offsets: the changes of all before them were put into the new table."""
    catch_up: CatchUp | None

    def entry(self, shape: Shape, marks: Marks) -> Entry:
        """For a log that has this shape and these marks now. Raises Behind, Differs, Hindered and Refused."""
        read, highest = self.read, marks.highest()
        if is_behind(read, highest) and self.catch_up is not None:
            read = self.catch_up(highest)
        if is_behind(read, highest):
            raise Behind
        if self.new.shape != shape:
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
        return statement, self._rows(shape), is_partial, _moved(marks, self.new.marks)

    def _rows(self, shape: Shape) -> pa.Table:
        """What came since the new table was merged, in one segment. Raises Hindered where it does not fit in
        one: the table has to be merged again."""
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
            # In which order they are within their segment.
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
    """The marks of the table with the new rows. Raises Refused."""
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
    """The number of the entry of this name in a log; 0: there is none. Raises what the file system raises."""
    there.load()
    entries = ((each.number, each.statement) for each in there.segments)
    return next((number for number, one in entries if one is not None and one.topic == name), 0)
