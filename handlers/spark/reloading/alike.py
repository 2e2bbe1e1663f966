"""Whether a table can have the rows of another: the same columns, and nothing declared that refuses them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from handlers.reloading import Differs, Refused, told_apart
from handlers.spark.delta.state import TableState, look
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["check_alike"]

_CONSTRAINT = "delta.constraints."


def check_alike(session: SparkSession, *, there: TableRef, new: TableRef) -> None:
    """Raises Differs and Refused: once they are to be its own, rows that the table does not take could never
    come into it."""
    table, built = look(session, there), look(session, new)
    if table is None:
        raise Differs(f"there is no table {there}; the next change that a worker applies makes it")
    if built is None:
        raise Differs(f"by what the topic holds there would be no table {there}")
    if table.properties.get("delta.appendOnly") == "true":
        raise Refused(f"{there} takes no changes of its rows (delta.appendOnly)")
    told = told_apart(_columns(table), _columns(built))
    if told:
        raise Differs(f"{there} has other columns than the topic tells: {told}")
    for text in _declared(table):
        if not session.table(new.sql).where(f"NOT coalesce(({text}), true)").isEmpty():
            raise Refused(f"the topic has rows that {there} does not take: {text}")


def _columns(table: TableState) -> dict[str, str]:
    return {field.name.casefold(): field.dataType.simpleString() for field in table.columns.fields}


def _declared(table: TableState) -> list[str]:
    """Conditions that hold of each row."""
    not_null = [f"{quoted(field.name)} IS NOT NULL" for field in table.columns.fields if not field.nullable]
    return not_null + [text for name, text in table.properties.items() if name.startswith(_CONSTRAINT)]
