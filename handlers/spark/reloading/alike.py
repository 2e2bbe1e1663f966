"""Whether a table can have the rows of another: the same columns, and nothing declared that refuses them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.reloading import Differs, Refused, told_apart
from handlers.spark.delta.state import TableState, look
from handlers.spark.rows.declared import Declared
from handlers.spark.table_ref import TableRef


def check_alike(session: SparkSession, *, there: TableRef, new: TableRef) -> None:
    """Raises Differs and Refused: once they are to be its own, rows that the table does not take could never
    come into it."""
    table, built = look(session, there), look(session, new)
    if table is None:
        raise Differs(f"there is no table {there}; the next change that a worker applies creates it")
    if built is None:
        raise Differs(f"according to the topic, there is no table {there}")
    declared = Declared.of(table.columns, table.partitions, table.properties)
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
