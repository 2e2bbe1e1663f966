"""Writing of batches as Parquet files."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from handlers.api import Batch, Change, HandlerContext, Rejected, TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.files.parquet_chain import BrokenFile, Chain, Source, encoded, find, sources_below
from handlers.files.table_file import check_writable, safe_name
from handlers.logs import get_logger
from handlers.progress import BEFORE_ALL, WHOLE, KnownIds, Partition, PassingOver, Place, beyond, of_former
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError, scheme_of
from handlers.spark.log.stores.local import LocalFiles, plain_path
from handlers.spark.rows.pieces import Piece, RowPiece, pieces
from handlers.spark.rows.shape import shape_of_log

log = get_logger("handlers.files")

_ROUNDS = 20
"""Most attempts for one batch. Each further one means that another worker wrote a file meanwhile."""
_MODE: Literal["changelog"] = "changelog"


@dataclass(slots=True)
class _Table:
    """The known state of one table's files."""

    folder: str
    chains: dict[Source, Chain] = field(default_factory=dict)
    looked_for_shards: set[Partition] = field(default_factory=set)
    told_of_other_order: bool = False


class ParquetFiles:
    """Writes batches as Parquet files. Any thread; batches of one table or shard must come one by one."""

    def __init__(self, directory: str, prefix: str, topic_again: Mapping[str, Collection[str]]) -> None:
        """`directory`: a folder, or a URI in an object store. `prefix`: starts the names of added columns.
        `topic_again`: see KnownIds."""
        self._directory = directory.rstrip("/")
        self._prefix = prefix
        self._known_ids = KnownIds(topic_again)
        self._lock = threading.Lock()  # guards _tables and their contents
        self._tables: dict[str, _Table] = {}
        self._files: Files | None = None
        self._passing_over: PassingOver | None = None
        self._context: HandlerContext | None = None

    def open(self, context: HandlerContext) -> None:
        """Open the store. Raises FilesError if it cannot be used."""
        self._context = context
        self._passing_over = PassingOver(context, log)
        self._directory, self._files = _store(self._directory, context.folder)

    def check(self, context: HandlerContext) -> None:
        """Test the store with a hidden file, which is removed again. Raises FilesError or OSError."""
        directory, files = _store(self._directory, context.folder)
        files.prove(directory)
        if isinstance(files, LocalFiles):  # its `prove` tests nothing
            check_writable(plain_path(directory))

    def release(self, partitions: Collection[Partition]) -> None:
        """Drop what is known of these partitions' files: another worker continues them."""
        left = set(partitions)
        with self._lock:
            for table in self._tables.values():
                table.looked_for_shards -= left
                for source in [each for each in table.chains if each[:2] in left]:
                    del table.chains[source]

    def handle(self, batch: Batch) -> None:
        """Write all changes of the batch to files.

        Raises Rejected, TargetUnavailable, FormerTopic. Raises UnfitPlace for a BrokenFile and for other
        errors of the store: no change caused them, so none may be skipped or set aside."""
        try:
            self._handle(batch)
        except (BrokenFile, FilesError) as error:
            if isinstance(error, FilesError) and error.is_outage:
                raise TargetUnavailable(str(error)) from error
            raise UnfitPlace(str(error)) from error

    def _handle(self, batch: Batch) -> None:
        table = self._table(batch)
        counts: dict[Partition, int] = {}
        for topic, partition in dict.fromkeys((one.topic, one.partition) for one in batch.changes):
            places = [
                place
                for place, one in enumerate(batch.changes)
                if one.partition == partition and one.topic == topic
            ]
            counts[topic, partition] = self._of_partition(table, batch, (topic, partition), places)
        if self._passing_over is not None:
            self._passing_over.passed_over(batch.table, len(batch.changes) - sum(counts.values()))

    def _of_partition(self, table: _Table, batch: Batch, partition: Partition, places: Sequence[int]) -> int:
        """Write one partition's changes, and return how many were written."""
        put = 0
        for _ in range(_ROUNDS):
            own, known = self._known(table, batch, partition)
            changes = [batch.changes[place] for place in places]
            pending, at = beyond(changes, {partition: known}, own.shard)
            if not pending:
                return put
            made = self._pieces(table, own, batch, pending, [places[one] for one in at])
            for piece in made:
                try:
                    self._put(table, own, piece, pending)
                except AlreadyThere as there:
                    log.info("file_is_another_workers", table=batch.table, path=there.path)
                    self._forget(table, own)
                    break
                put += piece.stop - piece.start
            else:
                self._forget_if_lost(table, own)
                return put
        raise FilesError(
            f"{table.folder}: another worker keeps writing the same changes; do two workers have the same "
            "group and name?"
        )

    # ---- existing files

    def _known(self, table: _Table, batch: Batch, partition: Partition) -> tuple[Source, dict[int, Place]]:
        """Return the source of the batch's changes in the partition, and the marks of all its shards."""
        own = Source(*partition, WHOLE if batch.shard is None else batch.shard)
        whole = own._replace(shard=WHOLE)
        sources = [own] if own == whole else [whole, own]
        if own == whole and partition not in table.looked_for_shards:
            sources += sources_below(self._store(), table.folder, *partition)
            with self._lock:
                table.looked_for_shards.add(partition)
        with self._lock:
            chains = {each: one for each, one in table.chains.items() if each[:2] == partition}
        for source in sources:
            if source not in chains:
                chains[source] = find(self._store(), table.folder, source)
        ids = [one.topic_id for one in chains.values() if one.hour]
        now = self._known_ids.followed(ids, partition, batch.topic_ids.get(partition[0]))
        if self._passing_over is not None:
            self._passing_over.made_anew(batch.table, of_former({partition: ids}, {partition: now}))
        for source, one in chains.items():
            if not now.covers(one.topic_id):
                generation = one.generation + 1
                chains[source] = replace(one, last=BEFORE_ALL, generation=generation, topic_id=now)
            elif one.topic_id != now:
                chains[source] = replace(one, topic_id=now)
        with self._lock:
            table.chains.update(chains)
        self._tell_other_order(table, batch, own, chains)
        return own, {source.shard: one.last for source, one in chains.items()}

    def _tell_other_order(
        self, table: _Table, batch: Batch, own: Source, chains: Mapping[Source, Chain]
    ) -> None:
        """Warn about newer files of the other `order_by`. Their names differ, so conflicts go undetected."""
        is_whole, last = own.shard == WHOLE, chains[own].last
        ahead = [one for each, one in chains.items() if (each.shard == WHOLE) != is_whole and one.last > last]
        with self._lock:
            is_told, table.told_of_other_order = table.told_of_other_order, bool(ahead)
        if ahead and not is_told:
            log.warning(
                "files_of_other_order",
                table=batch.table,
                path=ahead[0].newest,
                means="lanes.order_by was different when they were written: a worker that still uses that "
                "setting writes duplicates, so stop all such workers",
            )

    def _table(self, batch: Batch) -> _Table:
        with self._lock:
            known = self._tables.get(batch.table)
            if known is None:
                folder = f"{self._directory}/{safe_name(batch.database)}/{safe_name(batch.name)}"
                known = self._tables[batch.table] = _Table(folder)
            return known

    def _forget(self, table: _Table, source: Source) -> None:
        with self._lock:
            table.chains.pop(source, None)

    def _forget_if_lost(self, table: _Table, source: Source) -> None:
        """Forget a partition that was revoked meanwhile: what is known would soon be outdated."""
        context = self._context
        if context is None or context.partitions is None or source[:2] in context.partitions():
            return
        self.release([source[:2]])

    def _store(self) -> Files:
        if self._files is None:
            raise RuntimeError("handle was called before open")
        return self._files

    # ---- writing

    def _pieces(
        self, table: _Table, own: Source, batch: Batch, pending: Sequence[Change], at: Sequence[int]
    ) -> list[Piece]:
        with self._lock:
            chain = table.chains[own]
        known = shape_of_log(chain.schema, chain.key, mode=_MODE, prefix=self._prefix)
        try:
            return list(
                pieces(
                    pending,
                    mode=_MODE,
                    prefix=self._prefix,
                    overrides={},
                    known=known if known.schema.names else None,
                    table=batch.table,
                )
            )
        except Rejected as rejected:
            place = None if rejected.at is None else at[rejected.at]
            raise Rejected(str(rejected), at=place) from rejected

    def _put(self, table: _Table, own: Source, piece: Piece, pending: Sequence[Change]) -> None:
        """Write one file. Raises AlreadyThere, and passes on the store's errors."""
        with self._lock:
            chain = table.chains[own]
        first, last = pending[piece.start], pending[piece.stop - 1]
        assert isinstance(piece, RowPiece)  # in mode changelog, statements are rows too
        hour, path = chain.path(first.source_time_ms)
        if hour != chain.hour:
            # A worker with other changes may have chosen another hour for the same place.
            found = find(self._store(), table.folder, own)
            if found.newest != chain.newest:
                raise AlreadyThere(found.newest)
        grown = chain.grown(path, (last.offset, last.index), hour, piece.rows.schema, piece.shape.key)
        self._store().put(path, encoded(piece.rows, grown))
        with self._lock:
            table.chains[own] = grown


def _store(directory: str, folder: Path) -> tuple[str, Files]:
    """Return the directory in its store's notation, and the store."""
    if scheme_of(directory) in ("", "file"):
        own = directory if scheme_of(directory) else str(folder.absolute() / directory)
        return own, LocalFiles()
    from handlers.spark.log.stores.object_stores import ObjectFiles  # noqa: PLC0415 (loaded only if used)

    return directory, ObjectFiles(directory)
