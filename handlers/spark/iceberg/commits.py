"""Commits of Iceberg tables that merge each segment once, whoever else writes the table, and their upkeep.

Each snapshot's summary has the commit's note: its worker, and the segments that it merges. The same commit
records them in a table property, because snapshots expire. A commit is a compare-and-set: the catalog refuses
it if the table's newest snapshot or columns are not those that it was made from."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.table.update import AssertCurrentSchemaId, AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots, _ManifestMergeManager, _OverwriteFiles

from handlers.logs import get_logger
from handlers.spark.delta.commits.commit_notes import CommitNote, LostCommit, brought, read_note
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.iceberg.columns import arrow_schema, unfit
from handlers.spark.log.beside import Held
from handlers.spark.table_ref import TableRef

_EVERY = AlwaysTrue()
_SUMMARY = "binlane"
"""The key of a note in a snapshot's summary. The property with the log's name (`TableRef.app_id`) has four
numbers: first and last segment, snapshot, sequence number. Version 1 of the format has times instead."""
_METRICS = "write.metadata.metrics."
_FILE_BYTES = 128 * 2**20  # of rows in memory that become one file
_MOST_MANIFESTS = 20  # each commit adds one or two; then they become one


def held_in(ref: TableRef, table: Any) -> Held:
    """Return which segments of its log the table contains. `table`: None if it does not exist.

    Raises LostCommit if somebody has set the table back to a snapshot before the newest of them."""
    text = None if table is None else table.properties.get(ref.app_id)
    if text is None:
        return Held()
    first, last, snapshot, place = msgspec.json.decode(text)
    of_order = "timestamp_ms" if place > 10**12 else "sequence_number"
    newest, metadata = table.current_snapshot(), table.metadata
    is_there = any(each.snapshot_id == snapshot for each in ancestors_of(newest, metadata))
    places = (getattr(each, of_order) or 0 for each in ancestors_of(newest, metadata))  # or those after it
    if is_there or (newest and table.snapshot_by_id(snapshot) is None and min(places) >= place):
        notes = (read_note((each.summary or {}).get(_SUMMARY)) for each in reversed(table.snapshots()))
        found, held = (brought(each, ref.app_id) for each in notes), Held(first, last)
        return next((each for each in found if each == held), held)
    raise LostCommit(
        f"{ref} was set back to a snapshot before {snapshot}, which had segment {last} of its log: the rows "
        "between them would be lost. Make that snapshot current again (in Spark: CALL "
        "system.set_current_snapshot); or remove the table with its log, and read the source again"
    )


def noted_again(ref: TableRef, metadata: Any) -> dict[str, str]:
    """Return the property after snapshots were removed of a table that was not set back. Its newest snapshot
    may no longer lead to the noted one, which a tag keeps."""
    chain = list(ancestors_of(metadata.current_snapshot(), metadata))
    first, last, snapshot, _ = msgspec.json.decode(metadata.properties.get(ref.app_id, "[0,0,0,0]"))
    is_cut_off = metadata.snapshot_by_id(snapshot) and all(each.snapshot_id != snapshot for each in chain)
    return _noted(ref, first, last, chain[-1]) if is_cut_off else {}


def _noted(ref: TableRef, first: int, last: int, snapshot: Any) -> dict[str, str]:
    noted = first, last, snapshot.snapshot_id, snapshot.sequence_number or snapshot.timestamp_ms
    return {ref.app_id: msgspec.json.encode(noted).decode()}


class TableCommit:
    """One commit, prepared from what the table is now: columns, files and properties change together."""

    def __init__(self, ref: TableRef, table: Any) -> None:
        """`table`: or a transaction that creates it."""
        self.transaction: Any = table if isinstance(table, Transaction) else _Transaction(table)
        same = {"current-schema-id": self.transaction.table_metadata.current_schema_id}  # files have its ids
        self.transaction._stage((), (AssertCurrentSchemaId.model_validate(same),))
        self.ref = ref
        self._io = self.transaction._table.io
        self._noted: dict[str, str] = {}

    @property
    def schema(self) -> Any:
        """The table's columns, with the changes of this commit."""
        return self.transaction.table_metadata.schema()

    def files(self, matching: Any = _EVERY) -> list[Any]:
        """Return the data files that may have rows which match the expression, each with its deletes."""
        if (snapshot := self.transaction.table_metadata.current_snapshot()) is None:
            return []
        found = list(self.transaction._scan(matching, case_sensitive=False).plan_files())
        if any(each.content == ManifestContent.DELETES for each in snapshot.manifests(self._io)):
            paths = {each.file.file_path for each in found}  # without deletes of their other rows
            found = [each for each in self.transaction._scan().plan_files() if each.file.file_path in paths]
        return found

    def rows(self, file: Any, schema: Any = None) -> pa.Table:
        """Return a file's rows, without deleted ones. `schema`: None for the table's."""
        scan = ArrowScan(self.transaction.table_metadata, self._io, schema or self.schema, _EVERY)
        return scan.to_table([file]).cast(arrow_schema(schema or self.schema))

    def check(self) -> None:
        """Raise ValueError if the table is `unfit`."""
        metadata = self.transaction.table_metadata
        if why := unfit(metadata.schema(), metadata.spec()):
            raise ValueError(why)

    def replace(self, removed: Sequence[Any], added: Iterable[pa.Table], note: CommitNote) -> None:
        """Put rows in place of files, in one snapshot with the note. Raises ValueError if `unfit`."""
        self.check()
        counter = itertools.count()
        summary = {_SUMMARY: note.to_json(self.ref.app_id)}
        kind = Operation.OVERWRITE if removed else Operation.APPEND
        producer = _Replacing(kind, self.transaction, self._io, snapshot_properties=summary)
        try:
            with producer:
                for each in removed:
                    producer.delete_data_file(each.file)
                for rows in _packed(added):
                    for file in self._written(rows, producer.commit_uuid, counter):
                        producer.append_data_file(file)
        except pa.ArrowException:
            raise
        except (OverflowError, ValueError) as error:  # the least decimals have one digit more when truncated
            spec = "; ".join(map(str, self.transaction.table_metadata.spec().fields))
            raise ValueError(f"PyIceberg cannot write these rows by partitions ({spec}): {error}") from error
        if note.segment:
            made = self.transaction.table_metadata.snapshot_by_id(producer.snapshot_id)
            self._noted = _noted(self.ref, note.first, note.segment, made)

    def _written(self, rows: pa.Table, commit: Any, counter: Any) -> list[Any]:
        """Write files with these rows."""
        metadata = self.transaction.table_metadata
        try:
            return list(_dataframe_to_data_files(metadata, rows, self._io, commit, counter))
        except UnicodeEncodeError:  # PyIceberg has cut a bound and counted U+D7FF up, so write none
            kept = {key: each for key, each in metadata.properties.items() if not key.startswith(_METRICS)}
            plain = metadata.model_copy(update={"properties": {**kept, f"{_METRICS}default": "counts"}})
            return list(_dataframe_to_data_files(plain, rows, self._io, commit, counter))

    def commit(self, properties: Mapping[str, str] = {}) -> None:
        """Make the commit, with these table properties. Raises MergeConflict if another writer was first, and
        what the catalog raises. Then the commit may still have been made: look again."""
        self.transaction.set_properties({**self._noted, **properties})
        try:
            self.transaction.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise MergeConflict(f"{self.ref}: {str(error).splitlines()[0]}") from error


class _Transaction(Transaction):
    """PyIceberg's, which copies all snapshots each time that it is asked for the metadata."""

    _seen: tuple[Any, Any] = (None, None)

    @property
    def table_metadata(self) -> Any:
        if self._seen[0] is not self._updates:
            self._seen = self._updates, super().table_metadata
        return self._seen[1]


class _Replacing(_OverwriteFiles):
    """PyIceberg's change of files, with two other rules."""

    def _process_manifests(self, manifests: list[Any]) -> list[Any]:
        """Combine manifests, without those that only tell of files which earlier commits removed."""
        own, layouts = self.snapshot_id, self._transaction.table_metadata.partition_specs
        data = [each for each in manifests if each.content == ManifestContent.DATA]
        live = [
            m for m in data if m.has_added_files() or m.has_existing_files() or m.added_snapshot_id == own
        ]
        # PyIceberg cannot write a manifest again if somebody has dropped a column of its partitions.
        can = all(self.schema().find_column_name(one.source_id) for each in layouts for one in each.fields)
        merged = _ManifestMergeManager(8 * 2**20, _MOST_MANIFESTS, can, self).merge_manifests(live)
        return [*merged, *(each for each in manifests if each.content != ManifestContent.DATA)]

    def _clean_all_uncommitted(self) -> None:
        """Keep the files of a refused commit: it may have been made, if a proxy has sent it twice."""


def _packed(added: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Combine small tables, so that few files are written."""
    waiting: list[pa.Table] = []
    for rows in added:
        waiting += [rows] if rows.num_rows else []
        if sum(each.nbytes for each in waiting) >= _FILE_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


_log = get_logger("spark")
_MOST_SNAPSHOTS = 1_000  # each commit writes a list of all


def expire(table: Any, retention: float, load: Callable[[], Any], ref: TableRef) -> None:
    """Remove snapshots older than `retention` seconds, and all but the newest 1,000, with files that no other
    snapshot needs. Branches and tags keep theirs. With `gc.enabled` false, nothing is removed."""
    heads = {each.snapshot_id for each in table.refs().values()}
    times = sorted(one.timestamp_ms for one in table.snapshots() if one.snapshot_id not in heads)[::-1]
    oldest = max((time.time() - retention) * 1000, *times[_MOST_SNAPSHOTS : _MOST_SNAPSHOTS + 1], 0)
    if not times or times[-1] >= oldest or _is_shared(table):
        return
    before, found = _files(table), load()  # with branches and tags made meanwhile, or another table
    held_in(ref, found)
    known = set() if found is None else {each.snapshot_id for each in found.snapshots()}
    if not known.issuperset(each.snapshot_id for each in table.snapshots()) or _is_shared(found):
        return
    refs = [{"ref": name, "snapshot-id": each.snapshot_id} for name, each in found.refs().items()]
    with found.transaction() as change:  # `found` becomes what was committed
        ExpireSnapshots(change).older_than(datetime.fromtimestamp(oldest / 1000, UTC)).commit()
        change.set_properties(noted_again(ref, change.table_metadata))
        change._stage((), tuple(map(AssertRefSnapshotId.model_validate, refs)))  # none may be set back now
    for path in (gone := before - _files(found)):
        with suppress(OSError):
            found.io.delete(path)
    _log.info("iceberg_snapshots_expired", table=".".join(found.name()), files=len(gone))


def _is_shared(table: Any) -> bool:
    return bool(table.properties.get("gc.enabled", "").lower() == "false")


def _files(table: Any) -> set[str]:
    """Return the files that snapshots need."""
    manifests = {each.manifest_path: each for one in table.snapshots() for each in one.manifests(table.io)}
    entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io))
    files = {entry.data_file.file_path for entry in entries}
    return {*manifests, *files, *(one.manifest_list for one in table.snapshots())}
