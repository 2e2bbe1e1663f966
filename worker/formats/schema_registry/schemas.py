"""Schemas from the registry, by a record's head. A separate thread requests missing schemas."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from handlers.failures import pause_after
from handlers.logs import get_logger
from worker.formats.interface import UndecodableRecord
from worker.formats.schema_registry.client import (
    Client,
    Registered,
    RegistryUnavailable,
    UnknownSchema,
    UnusableSchema,
)
from worker.formats.schema_registry.ids import Heads
from worker.formats.schema_registry.registered import MEMORY_OF_TEXT, RegisteredSchema, read

log = get_logger("schema_registry")

_LAG_SECONDS, _LAG_PAUSE = 5.0, 0.5
"""Retry time and pause for an unknown id: the answering instance may lag behind the one that stored it."""
_YOUNG_SECONDS = 60.0
"""An unknown id is also requested again until the first record that names it is this old."""
_REFUSED_SECONDS = 60.0
_MOST_REFUSED = 10_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_REBUILT_PAUSE = 600.0
"""Seconds between two log lines that prepared schemas do not fit into memory."""
_MOST_KEPT = 64 << 20
"""Most bytes of all schemas, compressed."""
_read_registered = msgspec.msgpack.Decoder(Registered).decode


class StillUnknown(RuntimeError):
    """The registry did not answer within the caller's patience."""


class _Refused(msgspec.Struct, gc=False):
    reason: str
    until: float


class Schemas:
    """The known schemas, for any thread. Only `get` waits. A schema is received only once."""

    def __init__(
        self,
        client: Callable[[], Client],
        *,
        id_bytes: int = 4,
        in_headers: bool = False,
        max_memory: int = 160 << 20,
        patience: float | None = None,
        rebuilt: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`client`: makes the client at the first request, in the requesting thread. `id_bytes`,
        `in_headers`: see Heads. `max_memory`: approximate bytes of prepared schemas. `patience`: seconds that
        `get` waits for a registry that is down (None: forever). `rebuilt`: called when an evicted schema is
        prepared again. `now`: seconds since 1970."""
        self._client = client
        self.heads = Heads(id_bytes, in_headers=in_headers)
        """The heads of records."""
        self._max_memory = max_memory
        self._patience = patience
        self._rebuilt = rebuilt
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._changed = threading.Condition()  # guards all below; reading a dict takes no lock
        self.received: list[tuple[bytes, bytes]] = []
        """All schemas from the registry, for `keep` in other processes."""
        self._kept: dict[bytes, bytes] = {}
        self._kept_bytes = 0
        self._ready: dict[bytes, tuple[RegisteredSchema, int]] = {}
        self._ready_bytes = 0
        self._evicted = False
        self._rebuilds, self._rebuilds_logged = 0, -_REBUILT_PAUSE
        self._refused: dict[bytes, _Refused] = {}
        self._wanted: dict[bytes, float] = {}  # head -> time to refuse it, if still unknown
        self._asking = False
        self._trouble = "no answer yet"
        self._made: Client | None = None  # used only by the single requesting thread
        self.told: Callable[[str | None], None] = lambda _reason: None
        """Called in the requesting thread with the registry's error, or None once it answers again."""

    def settled(self, head: bytes) -> bool:
        """Whether a record with this head need not wait."""
        if head in self._kept:
            return True
        refused = self._refused.get(head)
        return refused is not None and self._clock() < refused.until

    def want(self, heads: Mapping[bytes, int]) -> None:
        """Request these schemas. Never waits for the registry. `heads`: head -> timestamp of its first
        record, in milliseconds since 1970 (0: no timestamp)."""
        with self._changed:
            for head, written_ms in heads.items():
                if not self.settled(head):
                    age = max(self._now() - written_ms / 1000, 0.0)
                    patience = max(_LAG_SECONDS, _YOUNG_SECONDS - age)
                    self._wanted.setdefault(head, self._clock() + patience)
            if self._wanted and not self._asking:
                self._asking = True
                threading.Thread(target=self._ask, name="schema-registry", daemon=True).start()

    def keep(self, received: Iterable[Sequence[bytes]]) -> None:
        """Take over what another process has received, instead of asking the registry."""
        self._kept.update((head, packed) for head, packed in received)

    def get(self, head: bytes) -> RegisteredSchema:
        """The schema of records with this head. Requests a schema that was never requested, and waits for it.
        A refused schema stays refused here; only `want` requests it again.

        Raises UndecodableRecord if the schema is refused, StillUnknown if `patience` has passed."""
        ready = self._ready.get(head)
        if ready is None and head not in self._kept and head not in self._refused:
            self._wait(head)
            ready = self._ready.get(head)
        if ready is not None:
            return ready[0]
        kept = self._kept.get(head)
        if kept is None:
            refused = self._refused.get(head)
            reason = "not found" if refused is None else refused.reason
            raise UndecodableRecord(f"schema {_shown(head)}: {reason}")
        made = self._made_ready(head, _read_registered(zlib.decompress(kept)))
        if self._evicted:
            self._count_rebuild()
        return made

    def _wait(self, head: bytes) -> None:
        self.want({head: 0})
        end = None if self._patience is None else self._clock() + self._patience
        with self._changed:
            while not self.settled(head):
                left = None if end is None else end - self._clock()
                if left is not None and left <= 0:
                    raise StillUnknown(
                        f"schema {_shown(head)}: the schema registry has not answered: {self._trouble}"
                    )
                self._changed.wait(left)

    # ---- the requesting thread

    def _ask(self) -> None:
        failures = 0
        while (head := self._next()) is not None:
            try:
                if self._made is None:
                    self._made = self._client()
                self._take(head, self._made.schema(Heads.read(head)))
            except (RegistryUnavailable, OSError) as error:
                failures += 1
                self._report(str(error), failures)
                self._put_off(head)  # perhaps only this schema fails
                self._sleep(pause_after(failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE))
                continue
            except UnknownSchema as error:
                self._unknown(head, str(error))
            except Exception as error:  # any other error refuses only this schema
                self._refuse(head, f"the schema cannot be used: {error}")
            if failures:
                self._report(None, failures)
                failures = 0

    def _next(self) -> bytes | None:
        """The first wanted head. None: no head is wanted, and the thread ends."""
        with self._changed:
            if not self._wanted:
                self._asking = False
                return None
            return next(iter(self._wanted))

    def _put_off(self, head: bytes) -> int:
        """Move the head to the end of the queue. Returns the number of wanted heads."""
        with self._changed:
            self._wanted[head] = self._wanted.pop(head)
            return len(self._wanted)

    def _take(self, head: bytes, registered: Registered) -> None:
        packed = zlib.compress(msgspec.msgpack.encode(registered))
        if self._kept_bytes + len(packed) > _MOST_KEPT:
            raise UnusableSchema(f"all schemas together have more than {_MOST_KEPT >> 20} MiB")
        self._made_ready(head, registered)
        with self._changed:
            self.received.append((head, packed))  # before others find that it is settled
            self._kept[head] = packed
            self._kept_bytes += len(packed)
            self._refused.pop(head, None)
            self._wanted.pop(head, None)
            self._changed.notify_all()
        log.debug("schema_read", schema=_shown(head), kind=registered.kind)

    def _made_ready(self, head: bytes, registered: Registered) -> RegisteredSchema:
        made = read(registered, head)
        size = made.weight * MEMORY_OF_TEXT
        with self._changed:
            if head not in self._ready:
                # Do not evict the oldest: if tables alternate, it is needed next.
                while self._ready and self._ready_bytes + size > self._max_memory:
                    self._ready_bytes -= self._ready.pop(random.choice(list(self._ready)))[1]
                    self._evicted = True
                self._ready[head] = made, size
                self._ready_bytes += size
        return made

    def _count_rebuild(self) -> None:
        self._rebuilt()
        with self._changed:
            self._rebuilds += 1
            is_due = self._clock() >= self._rebuilds_logged + _REBUILT_PAUSE
            if is_due:
                self._rebuilds_logged = self._clock()
        if is_due:
            log.warning(
                "schemas_rebuilt",
                times=self._rebuilds,
                ready=len(self._ready),
                known=len(self._kept),
                hint="records need more schemas than fit into schema_registry.max_memory, and parsing one "
                "again takes milliseconds: raise it",
            )

    def _unknown(self, head: bytes, answer: str) -> None:
        if self._clock() < self._wanted[head]:
            self._sleep(_LAG_PAUSE / self._put_off(head))  # each is requested about as often as a single one
            return
        self._refuse(head, f"the schema registry knows none with this id{f': {answer}' if answer else ''}")

    def _refuse(self, head: bytes, reason: str) -> None:
        with self._changed:
            self._refused.pop(head, None)
            self._refused[head] = _Refused(reason, self._clock() + _REFUSED_SECONDS)
            if len(self._refused) > _MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._wanted.pop(head, None)
            self._changed.notify_all()
        log.error("schema_refused", schema=_shown(head), error=reason)

    def _report(self, reason: str | None, failures: int) -> None:
        if reason is not None:
            self._trouble = reason
            if failures == 1:
                log.error(
                    "schema_registry_down",
                    error=reason,
                    hint="records whose schemas are not known yet wait; none is skipped, and other records "
                    "are read",
                )
        else:
            log.info("schema_registry_up")
        self.told(reason)


def _shown(head: bytes) -> int | str:
    text = Heads.read(head).text
    return int(text) if text.isdecimal() else text
