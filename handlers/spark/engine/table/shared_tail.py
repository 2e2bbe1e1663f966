"""The pieces after the last segment of one table's log, in packs that the table shares with others."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from handlers.api import Batch, Change
from handlers.failures import AskAgain
from handlers.spark.delta.arrow_rows import are_plain, newest_of
from handlers.spark.engine.table.waiting import Waiting
from handlers.spark.log.marks import Marks
from handlers.spark.log.pack_file import PackFolder, Piece, body_of, read_piece, rows_of
from handlers.spark.log.pack_writer import Pending, Ticket
from handlers.spark.log.segment_file import BrokenLog, Segment, missing, source_times
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.log.streams import Found, Packs
from handlers.spark.rows.shape import Shape

_FEW_BYTES = 64 * 2**10
"""The most bytes in memory of one batch's rows. A larger batch is written as a segment."""
_MOST_PIECES = 128
_MOST_BYTES = 4 * 2**20
"""The most bytes of one table in packs. Then they become a segment."""


class SharedTail:
    """The pieces after the last segment, in order. The caller holds the table's lock (see TableSink).

    The last segment names the stream of packs in which its log may continue. Only the stream's worker adds to
    it. Only this worker, or one that has ended the stream before, puts the next segment. The next segment
    contains all rows of the pieces, so it makes them obsolete."""

    def __init__(self, log: SegmentLog, packs: Packs, mode: str) -> None:
        self._log = log
        self._packs = packs
        self._mode = mode
        self._after = 0  # the segment that everything below follows
        self._stream: str | None = None
        # The answer to a put was lost. Nothing is added until a next segment exists, which may arrive late.
        self._is_unsure = False
        self._pieces: list[Pending | Found] = []
        self._marks: Marks | None = None
        self._rows = self._bytes = 0
        self._first_put = self.last_put = 0.0
        """Seconds since 1970. 0 without pieces."""
        self._schema: tuple[pa.Schema, bytes] | None = None
        self._is_left = False
        # This worker's partitions when another writer of the log was noticed. None if none was.
        self._beside_others: frozenset[tuple[str, int]] | None = None

    @property
    def marks(self) -> Marks:
        """The table's marks with all pieces, which may not be durable yet (see `ticket`)."""
        return self._log.marks if self._marks is None else self._marks

    @property
    def ticket(self) -> Ticket | None:
        """The ticket of the last piece's pack. None if everything is durable."""
        last = self._pieces[-1] if self._pieces else None
        return last.ticket if isinstance(last, Pending) and not last.ticket.is_durable else None

    @property
    def is_lost(self) -> bool:
        """Whether pieces may be missing from the stream, so that the log must be loaded."""
        ticket = self.ticket
        return ticket is not None and ticket.is_durable is False

    def with_waiting(self, waiting: Waiting) -> Waiting:
        """The rows that wait in segments, and those of the pieces."""
        if not self._pieces:
            return waiting
        since = self._first_put if waiting.since is None else min(waiting.since, self._first_put)
        return Waiting(
            waiting.segments + len(self._pieces),
            waiting.rows + self._rows,
            waiting.bytes + self._bytes,
            since,
            waiting.is_urgent,
        )

    # ---- which stream

    def stream_for(self, shape: Shape) -> str | None:
        """The stream that the next segment, with rows of this shape, must name. None without a stream."""
        writer = self._packs.writer
        if self._beside_others is not None and self._beside_others == self._packs.partitions():
            return None  # each worker would end the other's stream, of all its tables, at each batch
        is_for_it = self._mode == "changelog" or (self._mode == "replica" and are_plain(shape))
        return writer.stream() if writer is not None and is_for_it else None

    def takes(self, rows: pa.Table, shape: Shape) -> bool:
        """Whether these rows, of the last segment's shape, may be added here. They must be few, and that
        segment must say that the log may continue in this worker's stream."""
        writer, stream = self._packs.writer, self._log.stream
        if writer is None or stream is None or stream != self._stream or self._after != self._log.last:
            return False
        if self._is_unsure or self.is_lost or not writer.is_open(stream):
            return False
        if rows.get_total_buffer_size() > _FEW_BYTES:  # costs a thirtieth of `nbytes`
            return False
        return not any(rows.column(name).null_count for name in shape.key)

    @property
    def has_pieces(self) -> bool:
        return bool(self._pieces)

    @property
    def is_full(self) -> bool:
        return len(self._pieces) >= _MOST_PIECES or self._bytes >= _MOST_BYTES

    # ---- changes

    def put(self, rows: pa.Table, marks: Marks) -> None:
        """Add rows that `takes` accepts to the next pack. See `ticket`. Raises SegmentTaken."""
        writer = self._packs.writer
        assert writer is not None
        assert self._stream is not None
        if self._schema is None or not self._schema[0].equals(rows.schema):
            self._schema = rows.schema, rows.schema.serialize().to_pybytes()
        body = body_of(rows, self._schema[1])
        now = time.time()
        piece = Piece(
            *(self._packs.name_of(self._log.folder), self._after, len(self._pieces) + 1, 0, len(body), 0),
            *(rows.num_rows, int(now * 1000), *source_times(rows), marks.to_json()),
        )
        pending = writer.add(self._stream, piece, body)
        if pending is None:
            raise SegmentTaken(self._log.folder)
        self._add(pending, piece, marks)

    def flush(self, shape: Shape, append: Callable[[pa.Table, Marks], Segment]) -> None:
        """Put the rows of all pieces as the next segment, with `append`. `shape`: of the last segment. Raises
        SegmentTaken, BrokenLog, and what the store raises."""
        if not self._pieces:
            return
        if self.is_lost:
            raise SegmentTaken(self._log.folder)
        rows, marks = self._all_rows(shape), self.marks
        self.append(lambda: append(rows, marks))

    def append(self, append: Callable[[], Segment]) -> Segment:
        """Put the log's next segment with `append`. No pieces follow it yet. Raises what `append` raises."""
        self._is_unsure = True
        segment = append()
        self._is_unsure = False
        self._begin()
        return segment

    def _begin(self) -> None:
        before, stream, has_moved = self._pieces, self._stream, self._after != self._log.last
        self._pieces, self._marks = [], None
        self._rows = self._bytes = 0
        self._first_put = self.last_put = 0.0
        self._after, self._stream = self._log.last, self._log.stream
        if stream is None or not before or not has_moved:
            return
        pending = [piece for piece in before if isinstance(piece, Pending)]
        if pending and self._packs.writer is not None:
            self._packs.writer.through(stream, pending)
        if len(pending) < len(before):
            self._packs.through(stream, self._log.folder)

    def let_go(self) -> None:
        """Note that another worker serves the log from now on."""
        self._is_left = True

    def load(self) -> None:
        """The log was loaded: find the pieces after its last segment. Raises SegmentTaken, BrokenLog, and
        what the store raises."""
        stream, writer = self._log.stream, self._packs.writer
        is_known = stream is not None and stream == self._stream and self._after == self._log.last
        if is_known and writer is not None and stream is not None and writer.is_open(stream):
            return  # and a put whose answer was lost may still arrive
        if self._after not in (0, self._log.last) and not self._is_left and not self._is_unsure:
            self._beside_others = self._packs.partitions()
        self._is_left = False
        self._begin()
        if stream is None:
            self._is_unsure = False
            return
        try:
            found = self._packs.pieces_of(stream, self._log.folder, self._log.last)
        except BrokenLog:
            if self._log.has_grown():  # and its pieces were removed
                raise SegmentTaken(self._log.folder) from None
            raise
        for each in found:
            self._add(each, each[1], Marks.from_json(each[1].marks))
        self._is_unsure = False
        if not found:
            self._packs.through(stream, self._log.folder)

    def _add(self, held: Pending | Found, piece: Piece, marks: Marks) -> None:
        self._pieces.append(held)
        self._marks = marks
        self._rows += piece.rows
        self._bytes += piece.size
        self.last_put = piece.written_ms / 1000
        self._first_put = self._first_put or self.last_put

    def _all_rows(self, shape: Shape) -> pa.Table:
        """Return all rows in one table. In a replica, keep the last row of each key, as in every segment."""
        rows = pa.concat_tables([rows_of(self._body(piece)) for piece in self._pieces])
        if self._mode != "replica" or len(self._pieces) == 1:
            return rows
        newest = newest_of(rows, shape.key)
        assert newest is not None  # see `takes`
        return newest

    def _body(self, held: Pending | Found) -> bytes:
        assert self._stream is not None
        if isinstance(held, Pending):
            body = held.body  # read it once: another thread may clear it
            if body is not None:
                return body
            number, where = held.number, (held.begin, held.size, held.checksum)
        else:
            number, where = held[0], (held[1].begin, held[1].size, held[1].checksum)
        path = PackFolder(self._packs.files, self._packs.logs, self._stream).place(number)
        try:
            return read_piece(self._packs.files, path, *where)
        except FileNotFoundError:
            # Another worker may have written it into the log.
            if isinstance(held, Pending) and not self._log.has_grown():
                raise BrokenLog(missing(path)) from None
            self._packs.forget(self._stream)
            raise SegmentTaken(self._log.folder) from None


_Place = tuple[str, int, int, int]
_Whose = tuple[_Place, _Place, int, dict[str, str]]


class Handed:
    """Batches in packs that may not be durable: one per table, or per shard. One thread for each."""

    def __init__(self) -> None:
        self._waiting: dict[int | None, tuple[_Whose, Ticket]] = {}

    def is_durable(self, batch: Batch) -> bool:
        """Whether the batch was handed over and is durable. Raises AskAgain if not known yet."""
        found = self._waiting.pop(batch.shard, None)
        if found is None or found[0] != _whose(batch):
            return False
        ticket = found[1]
        if ticket.is_durable is None:
            self.wait(batch, ticket)
        return bool(ticket.is_durable)

    def wait(self, batch: Batch, ticket: Ticket) -> None:
        """Wait until the pack of this ticket is durable. Raises AskAgain."""
        if batch.changes:
            self._waiting[batch.shard] = _whose(batch), ticket
        raise AskAgain(ticket.wait())


def _whose(batch: Batch) -> _Whose:
    """With the topics' ids, because a recreated topic has the same positions."""
    changes = batch.changes
    return _place(changes[0]), _place(changes[-1]), len(changes), dict(batch.topic_ids)


def _place(change: Change) -> _Place:
    return change.topic, change.partition, change.offset, change.index
