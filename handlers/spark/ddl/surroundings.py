"""What a DDL statement may need besides its own table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from handlers.mysql.ddl import TableName
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.log.stores.interface import Files
from handlers.spark.table_ref import TableRef


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Things that a statement may need besides its own table."""

    ref_of: Callable[[TableName], TableRef]
    files: Files
    root: str
    """The worker's own folder or URI, for records of finished renames."""
    settle: Callable[[TableName], None] = lambda _: None
    """Merge all waiting changes of a source table, and leave one segment without rows in its log. Called for
    every table before it is moved or dropped. Otherwise, the next start would merge the rest of the log into
    whichever table has that name then."""
    leaving: Callable[[TableName], None] = lambda _: None
    """Called after `settle` for a source table whose Delta table is about to be dropped or renamed. Also
    called for one whose name another table is about to get. Its log's rows are in the table that leaves."""
    databases_of: Callable[[str], Iterable[str]] = lambda _: ()
    """The databases that contain a known source table of this name."""
    handles: Callable[[str], bool] = lambda _: True
    """Whether the handler receives the records of a source table ("database.table")."""
    partition_by: Sequence[str] = ()
    """Partition columns of a new table."""
    cluster_by: Sequence[str] = ()
    """Clustering columns of a new table."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Table properties of a new table."""
    overrides: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Lower-case column -> its type, whatever the source's type is."""
    next_version: Callable[[TableRef], NextVersion | None] = lambda _: None
    """Returns a table's next version, to be committed without Spark. None if Spark must make it."""
    create: Callable[[TableRef, Mapping[str, str], Mapping[str, str], str], bool] = lambda *_: False
    """Creates a table with these columns, properties and user metadata. Returns False if Spark must do it."""
