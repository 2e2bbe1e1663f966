"""Tables, or single handlers of them, that a person has paused. A file beside the checkpoint lists them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from handlers.logs import get_logger
from handlers.options.matching import PatternError, table_matcher
from handlers.options.values import parse_duration
from offsets.file_lock import LockHeld, locked
from offsets.stores.file import flush_directory, write_durably
from offsets.stores.interface import CheckpointError
from worker.attempts.steps import MustWait
from worker.configuration import Configuration
from worker.observing.status import Pause
from worker.observing.unblock_messages import Answer, PauseRequest, Refused

log = get_logger("pauses")

_AGAIN_SECONDS = 5.0
"""The longest time until a paused batch looks again. The end of its pause wakes it earlier."""
_LOCK_SECONDS = 5.0
_read_pauses = msgspec.json.Decoder(list[Pause]).decode


class Paused(MustWait):
    """A person has paused the handler for this table."""


class TablePauses:
    """Any thread. Workers of one group that use the same folder share its pauses."""

    def __init__(
        self,
        configuration: Configuration,
        names: Callable[[], tuple[list[str], set[str]]],
        look_again: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.fromtimestamp(time.time(), UTC),
    ) -> None:
        """`names`: see TableBook. `look_again` is called when pauses have changed."""
        tag = hashlib.sha256(configuration.kafka.group_id.encode()).hexdigest()[:32]
        self.path = configuration.checkpoint.directory / f"paused-{tag}.json"
        self.given: Sequence[Pause] = []
        self._matchers: list[tuple[Callable[[str], bool], Pause]] = []
        self._names = names
        self._look_again = look_again
        self._now = now
        self._lock = threading.RLock()  # orders the changes of `given`

    def why(self, table: str, handlers: Iterable[str]) -> Paused | None:
        """Return why none of these handlers may get a batch of the table. None: one of them may."""
        now = self._now()
        own = [each for matches, each in self._matchers if matches(table) and not each.ended(now)]
        paused = {each.handler: each for each in own}
        found = [paused.get(None) or paused.get(name) for name in handlers]
        pause = found[0] if found and all(found) else None
        if pause is None:
            return None
        left = _AGAIN_SECONDS if pause.until is None else (pause.until - now).total_seconds()
        return Paused(pause.told, min(left, _AGAIN_SECONDS))

    def look(self) -> None:
        """End pauses whose time is over, and learn those that another worker was given. Call this often."""
        try:
            self.adopt()
        except CheckpointError as error:
            log.error("pauses_unreadable", error=str(error))

    def adopt(self, **who: str) -> None:
        """Use the pauses in the file. `who` changed it, for the log. Raises CheckpointError."""
        with self._lock:
            before, now = self.given, self._now()
            after = [each for each in self._read() if not each.ended(now)]
            if after == before:
                return
            # Remembered, because each batch asks, and an expression may take long.
            self._matchers = [(lru_cache(10_000)(table_matcher(each.table)), each) for each in after]
            self.given = after
            self._look_again()
            for pause in (each for each in after if each not in before):
                log.warning("table_paused", **{**msgspec.to_builtins(pause), **who})
            names = {each.name for each in after}
            for pause in (each for each in before if each.name not in names):
                what = {"table": pause.table, "handler": pause.handler, "was": pause.told}
                log.warning("table_resumed", **what, expired=pause.ended(now), **who)

    def __call__(self, asked: PauseRequest, client: str) -> Answer:
        """`client`: the address that the request came from."""
        try:
            with locked(self.path.with_suffix(".lock"), _LOCK_SECONDS):
                after, answer = self._changed(asked)
                new = self.path.with_suffix(".new")
                write_durably(new, msgspec.json.encode(after))
                with self._lock:  # else `look` might log it, and not know the client
                    new.replace(self.path)
                    flush_directory(self.path.parent)
                    self.adopt(by=asked.by, client=client)
        except (CheckpointError, LockHeld, OSError, Refused) as error:
            log.warning("pause_refused", table=asked.table, found=str(error), by=asked.by, client=client)
            return Answer(result="refused", message=str(error))
        return answer

    def _changed(self, asked: PauseRequest) -> tuple[list[Pause], Answer]:
        """Return the pauses after this request. Raises Refused."""
        now, matches = self._now(), _matcher(asked.table)
        pause = Pause(
            table=asked.table,
            handler=asked.handler,
            by=asked.by,
            since=now,
            until=None if asked.duration is None else _until(asked.duration, now),
            reason=asked.reason,
        )
        given = [each for each in self._read() if not each.ended(now)]
        others = [each for each in given if each.name != pause.name]
        tables, handlers = self._names()
        if asked.action == "resume":
            if others == given:
                raise Refused(f"there is no pause of {pause.name}. Pauses: {_list(given) or 'none'}")
            own = [asked.table, *filter(matches, tables)]
            left = [
                each
                for each in others
                if (each.handler is None or asked.handler in (None, each.handler))
                and any(map(table_matcher(each.table), own))
            ]
            rest = f", except what another pause stops: {_list(left)}" if left else ""
            return others, Answer(result="resumed", message=f"{pause.name} continues{rest}")
        if asked.handler is not None and asked.handler not in handlers:
            raise Refused(f"no table has a handler {asked.handler}: there are {', '.join(sorted(handlers))}")
        message = f"{pause.name} is {pause.told}; tables that match so far: {sum(map(matches, tables))}"
        return [*others, pause], Answer(result="paused", message=message)

    def _read(self) -> list[Pause]:
        """Raises CheckpointError."""
        try:
            pauses = _read_pauses(self.path.read_bytes())
            for each in pauses:
                table_matcher(each.table)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.path}: {error}; correct or delete this file of pauses") from error
        return pauses


def _list(pauses: Iterable[Pause]) -> str:
    return "; ".join(f"{each.name} {each.told}" for each in pauses)


def _matcher(asked: str) -> Callable[[str], bool]:
    """Raises Refused."""
    try:
        return table_matcher(asked)
    except PatternError as error:
        nearest = f"; nearest: {error.nearest}" if error.nearest else ""
        raise Refused(f"table: found {asked!r}; allowed: {error.allowed}{nearest}") from None


def _until(asked: str, now: datetime) -> datetime:
    """Raises Refused."""
    try:
        if (end := now + timedelta(seconds=parse_duration(asked))) > now:
            return end
    except (OverflowError, ValueError):
        pass
    raise Refused(f"for: found {asked!r}; allowed: a duration such as 30s, 5m or 24h, more than 0")
