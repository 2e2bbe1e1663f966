"""Writes this worker's stream of packs: the small batches of all its tables, one file per cycle."""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from handlers.hanging_calls import Background
from handlers.logs import get_logger
from handlers.spark.log.pack_file import Index, PackFolder, Piece, StreamEnded, encoded
from handlers.spark.log.stores.interface import Files

_MOST_BYTES = 16 * 2**20
"""Size of a pack that is put at once."""
_IN_MEMORY = 32 * 2**20
"""Bytes of pieces kept in memory, so that they can be written into their logs without being read."""
_REMOVE_EVERY = 60.0
"""Seconds."""
_LOOK_THROUGH_EVERY = 60
"""In cycles of `_REMOVE_EVERY`."""
_SOON = 0.05
"""Seconds until a pack that takes longer than the last one is checked again."""

_log = get_logger("spark")


@dataclass(eq=False, slots=True)
class Ticket:
    """The state of one pack. Any thread."""

    due: float
    """When the state is probably known (seconds by the clock)."""
    clock: Callable[[], float]
    is_durable: bool | None = None
    """None while unknown. False: perhaps not, and the stream is over."""

    def wait(self) -> float:
        """Seconds until it is worth asking."""
        return max(self.due - self.clock(), _SOON)


class Pending:
    """A piece that this worker has made. Its place is known when its ticket says that it is durable."""

    __slots__ = ("begin", "body", "checksum", "is_needed", "number", "size", "ticket")

    def __init__(self, body: bytes, ticket: Ticket) -> None:
        self.body: bytes | None = body
        """None: it must be read."""
        self.ticket = ticket
        self.is_needed = True
        """Whether its rows are not in their log yet."""
        self.number = 0
        self.begin = 0
        self.size = len(body)
        self.checksum = 0


@dataclass(eq=False, slots=True)
class _Pack:
    """The content of the next pack. Guarded by the writer's lock until it is put."""

    ticket: Ticket
    bytes: int = 0
    pieces: list[tuple[Pending, Piece]] = field(default_factory=list)


class PackWriter:
    """One thread, `spark-packs`, from `start` to `end`, and `spark-packs-old` for work that no batch waits
    for. Any thread may call any method.

    A stream ends when a put fails for any reason. If the pack was put all the same, it is found like packs
    that another worker left. Later pieces go into a new stream."""

    def __init__(
        self,
        files: Files,
        logs: str,
        *,
        every: float,
        clock: Callable[[], float] = time.monotonic,
        look_through: Callable[[], None] = lambda: None,
    ) -> None:
        """`logs`: the folder of all logs. `every`: the least seconds between two puts. `look_through` is
        called once an hour."""
        self.thread = Background("spark-packs", self._run)
        self._files = files
        self._logs = logs
        self._every = every
        self._clock = clock
        self._old = Background("spark-packs-old", self._tidy)
        self._look_through = look_through
        self._changed = threading.Condition()  # guards all below
        self._stream: str | None = None
        self._number = 0  # of the last pack that was put
        self._pack: _Pack | None = None
        self._began = -every  # when the last put began
        self._took = 0.0  # seconds
        self._needed: dict[int, int] = {}  # pack number -> its pieces that are not in their logs yet
        self._kept: deque[Pending] = deque()  # with their bodies, oldest first
        self._kept_bytes = 0

    def stream(self) -> str:
        """The stream that accepts pieces now."""
        with self._changed:
            if self._stream is None:
                self._stream, self._number = uuid.uuid4().hex, 0
            return self._stream

    def is_open(self, stream: str) -> bool:
        """Whether this stream accepts pieces."""
        return self._stream == stream

    def give_up(self, stream: str) -> None:
        """Put nothing more into the stream, because somebody is about to end it."""
        with self._changed:
            if self._stream == stream:
                self._over()

    def add(self, stream: str, piece: Piece, body: bytes) -> Pending | None:
        """Add a piece to the next pack. None: the stream is over. `piece`: without its place in the file."""
        with self._changed:
            if self._stream != stream:
                return None
            if self._pack is None:
                due = max(self._clock(), self._began + self._every) + self._took
                self._pack = _Pack(Ticket(due, self._clock))
                self._changed.notify()
            pack = self._pack
            pending = Pending(body, pack.ticket)
            pack.pieces.append((pending, piece))
            pack.bytes += len(body)
            if pack.bytes >= _MOST_BYTES:
                self._changed.notify()
            return pending

    def through(self, stream: str, pieces: Iterable[Pending]) -> None:
        """Mark these pieces as written into their log."""
        with self._changed:
            for piece in pieces:
                piece.is_needed = False
                if self._stream == stream and piece.number in self._needed and piece.ticket.is_durable:
                    self._needed[piece.number] -= 1

    def put(self) -> bool:
        """Put the waiting pieces now. Returns whether there were any."""
        with self._changed:
            pack, self._pack = self._pack, None
            stream, number = self._stream, self._number + 1
            self._began = self._clock()
        if pack is None or stream is None:
            return False
        try:
            self._put(stream, number, pack)
        except BaseException as error:
            with self._changed:
                pack.ticket.is_durable = False
                if self._stream == stream:
                    self._over()
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, StreamEnded):
                _log.warning("spark_pack_not_put", stream=stream, number=number, error=str(error))
        return True

    def _put(self, stream: str, number: int, pack: _Pack) -> None:
        begin, pieces = 0, []
        for pending, piece in pack.pieces:
            body = pending.body or b""
            pending.number, pending.begin, pending.checksum = number, begin, zlib.crc32(body)
            pieces.append(replace(piece, begin=begin, checksum=pending.checksum))
            begin += pending.size
        data = encoded(
            Index(stream, number, tuple(pieces)), [pending.body or b"" for pending, _ in pack.pieces]
        )
        began = self._clock()
        PackFolder(self._files, self._logs, stream).put(number, data)
        with self._changed:
            self._took = self._clock() - began
            if self._stream != stream:  # it was given up meanwhile, and whoever did so reads its packs
                pack.ticket.is_durable = False
                return
            self._number = number
            self._needed[number] = sum(pending.is_needed for pending, _ in pack.pieces)
            pack.ticket.is_durable = True
            for pending, _ in pack.pieces:
                self._kept.append(pending)
                self._kept_bytes += pending.size
            while self._kept_bytes > _IN_MEMORY:
                oldest = self._kept.popleft()
                self._kept_bytes -= oldest.size
                oldest.body = None

    def remove(self) -> None:
        """Remove packs whose pieces are all in their logs, but never the last pack. Raises what the store
        raises. The next call tries again."""
        with self._changed:
            stream, last = self._stream, self._number
            numbers = [number for number, left in self._needed.items() if left <= 0 and number < last]
        if stream is None or not numbers:
            return
        PackFolder(self._files, self._logs, stream).remove(numbers)
        with self._changed:
            if self._stream == stream:
                for number in numbers:
                    self._needed.pop(number, None)

    def _over(self) -> None:
        """End the stream. Call it with the lock."""
        self._stream = None
        if self._pack is not None:
            self._pack.ticket.is_durable = False
            self._pack = None
        self._needed = {}
        self._kept.clear()
        self._kept_bytes = 0

    def start(self) -> None:
        self.thread.start()
        self._old.start()

    def end(self) -> None:
        self.thread.end()
        self._old.end()
        with self._changed:
            self._changed.notify()

    def ended(self, within: float) -> bool:
        until = time.monotonic() + within
        return self.thread.ended(within) and self._old.ended(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while not self.thread.stopped.is_set():
            self._await_turn()
            self.put()
        self.put()  # so its batches are not handed over and handled again

    def _await_turn(self) -> None:
        """Wait until a pack must be put."""
        with self._changed:
            while not self.thread.stopped.is_set():
                left = None
                if self._pack is not None:
                    left = self._began + self._every - self._clock()
                    if left <= 0 or self._pack.bytes >= _MOST_BYTES:
                        return
                self._changed.wait(left)

    def _tidy(self) -> None:
        """Remove unneeded packs. This may take long, and packs are put meanwhile."""
        for turn in count():
            if self._old.stopped.wait(_REMOVE_EVERY):
                return
            for what, do in (("remove", self.remove), ("look_through", self._look_through)):
                try:
                    if what == "remove" or not turn % _LOOK_THROUGH_EVERY:
                        do()
                except Exception as error:
                    _log.warning("spark_packs_not_removed", what=what, error=str(error))
