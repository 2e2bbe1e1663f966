"""Commits of Iceberg tables that merge each segment once, whoever else writes the table.

Each snapshot's summary has the commit's note: its worker, and the segments that it merges. The same commit
records them in a table property, because snapshots expire. A commit is a compare-and-set: the catalog refuses
it if the table's newest snapshot is not the one that it was made from."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.table.snapshots import ancestors_of

from handlers.spark.delta.commits.commit_notes import CommitNote, LostCommit, brought, read_note
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.iceberg.catalog import IcebergCatalog, Name
from handlers.spark.iceberg.columns import new_partitions, new_schema
from handlers.spark.log.last_seen_table import Held
from handlers.spark.table_ref import TableRef

_SUMMARY = "binlane"
"""The key of a note in a snapshot's summary."""
MADE = "binlane.made"
"""The property of tables that are dropped when the source drops its own."""
_NEW_TABLE = {
    MADE: "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_FILE_BYTES = 128 * 2**20
"""The most bytes of rows in memory that become one file."""


class _Noted(msgspec.Struct, frozen=True):
    """The newest merge, in the property with the log's name (`TableRef.app_id`)."""

    first: int
    segment: int
    snapshot: int
    sequence: int
    """The table's sequence number with this snapshot."""


def held_in(ref: TableRef, table: Any) -> Held:
    """Return which segments of its log the table contains. `table`: None if it does not exist.

    Raises LostCommit if somebody has set the table back to a snapshot before the newest of them."""
    if table is None:
        return Held()
    text = table.properties.get(ref.app_id)
    noted = None if text is None else msgspec.json.decode(text, type=_Noted)
    found = _newest(ref, table)
    if noted is None or noted.segment <= found.last:
        return found
    head = table.current_snapshot()
    is_there = table.snapshot_by_id(noted.snapshot) is not None
    if found.last or head is None or is_there or (head.sequence_number or 0) < noted.sequence:
        raise LostCommit(
            f"{ref} was set back to a snapshot before {noted.snapshot}, which had segment {noted.segment} of "
            "its log: the rows between them would be lost. Make that snapshot current again (in Spark: CALL "
            "system.set_current_snapshot); or remove the table with its log, and read the source again"
        )
    return Held(noted.first, noted.segment)  # the snapshot has expired


def _newest(ref: TableRef, table: Any) -> Held:
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if (held := brought(read_note(summary.get(_SUMMARY)), ref.app_id)) is not None:
            return held
    return Held()


def creating(
    catalog: IcebergCatalog,
    name: Name,
    columns: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, Any],
) -> Any:
    """Begin a transaction that creates a table. `properties`: the handler's option."""
    schema = new_schema(columns)
    given = {
        each: str(value).lower() if isinstance(value, bool) else str(value)
        for each, value in properties.items()
    }
    partitions = new_partitions(partition_by, schema)
    return catalog.creating(name, schema=schema, partition_spec=partitions, properties=_NEW_TABLE | given)


class TableCommit:
    """One commit, prepared from what the table is now: columns, files and properties change together."""

    def __init__(self, catalog: IcebergCatalog, name: Name, ref: TableRef, transaction: Any) -> None:
        self.transaction = transaction
        self._catalog = catalog
        self._name = name
        self.ref = ref
        self._snapshot: int | None = None
        self._own = {f"{ref.app_id}.commit": uuid.uuid4().hex}
        self._written: list[str] = []

    @property
    def table_id(self) -> str:
        return str(self.transaction.table_metadata.table_uuid)

    @property
    def schema(self) -> Any:
        """The table's columns, with the changes of this commit."""
        return self.transaction.table_metadata.schema()

    def files(self, matching: Any) -> list[Any]:
        """Return the data files that may have rows which match the expression, each with its deletes."""
        if self.transaction.table_metadata.current_snapshot() is None:
            return []
        return list(self.transaction._scan(matching, case_sensitive=False).plan_files())

    def rows(self, file: Any, schema: Any) -> pa.Table:
        """Return these columns of a file, without its deleted rows."""
        scan = ArrowScan(self.transaction.table_metadata, self.transaction._table.io, schema, AlwaysTrue())
        return scan.to_table([file])

    def replace(self, removed: Sequence[Any], added: Iterable[pa.Table], note: CommitNote) -> None:
        """Put rows in place of files, in one snapshot with the note."""
        summary = {_SUMMARY: note.to_json(self.ref.app_id, self._own[f"{self.ref.app_id}.commit"])}
        update = self.transaction.update_snapshot(snapshot_properties=summary)
        producer = update.overwrite() if removed else update.fast_append()
        with producer:
            for each in removed:
                producer.delete_data_file(each.file)
            for each in self._files_with(added, producer.commit_uuid):
                producer.append_data_file(each)
        self._snapshot = producer.snapshot_id
        if note.segment:
            sequence = self.transaction.table_metadata.last_sequence_number
            noted = _Noted(note.first, note.segment, producer.snapshot_id, sequence)
            self._own[self.ref.app_id] = msgspec.json.encode(noted).decode()

    def _files_with(self, added: Iterable[pa.Table], commit: uuid.UUID) -> Iterator[Any]:
        metadata, io, counter = (
            self.transaction.table_metadata,
            self.transaction._table.io,
            itertools.count(),
        )
        for rows in _packed(added):
            for file in _dataframe_to_data_files(metadata, rows, io, commit, counter):
                self._written.append(file.file_path)
                yield file

    def commit(self, properties: Mapping[str, str] = {}) -> None:
        """Make the commit, with these table properties. Raises MergeConflict if another writer was first, and
        what the catalog raises. Then the commit may still have been made."""
        self.transaction.set_properties({**self._own, **properties})
        try:
            self.transaction.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError) as error:
            self._discard()
            raise MergeConflict(f"{self.ref}: {str(error).splitlines()[0]}") from error
        except Exception:
            if not self._is_made():
                raise

    def _is_made(self) -> bool:
        """Whether the catalog has made the commit, although its answer was an error."""
        with suppress(Exception):
            table = self._catalog.load(self._name)
            return table is not None and self._own.items() <= table.properties.items()
        return False

    def _discard(self) -> None:
        for path in self._written:
            with suppress(Exception):  # files that no snapshot has do no harm
                self.transaction._table.io.delete(path)


def _packed(added: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Combine small tables, so that few files are written."""
    waiting: list[pa.Table] = []
    for rows in added:
        if rows.num_rows:
            waiting.append(rows)
        if sum(each.nbytes for each in waiting) >= _FILE_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
