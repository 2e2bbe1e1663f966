"""What child processes are given before they work: handlers, the configuration, definitions and schemas."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import Any, cast

from handlers import HandlerContext
from worker.attempts.steps import ProcessAway
from worker.configuration import Configuration, HandlerEntry
from worker.formats.interface import Format, Record, passed_on
from worker.formats.registry import FormatChoice
from worker.processes.process import Process
from worker.processes.records import packed

_AT_ONCE = 500
"""Most records with definitions, or schemas, in one message."""
_AGAIN_SECONDS = 0.1


class Noting:
    """A format that learns definitions, and appends the records that it has learned from to `into`."""

    def __init__(self, format_: Format, into: list[tuple[Any, ...]]) -> None:
        self._learn = cast(Any, format_).learn
        self._into = into
        self._noted: set[tuple[Any, ...]] = set()
        vars(self).update(passed_on(format_, Noting))

    def learn(self, record: Record) -> None:
        try:
            self._learn(record)
        finally:
            place = record.topic(), record.partition(), record.offset(), record.timestamp()
            if place not in self._noted:  # a later assignment reads it again
                self._noted.add(place)
                self._into.append((*place[:2], *packed([record])))


@dataclass(frozen=True, eq=False)
class Opening:
    """A handler that the processes open."""

    number: int
    entry: HandlerEntry
    context: HandlerContext

    def packed(self) -> tuple[bytes, str, dict[str, Any]]:
        context = self.context
        names = ("worker", "handler", "lane", "lanes", "start_timeout", "spark")
        return pickle.dumps(self.entry), str(context.folder), {name: getattr(context, name) for name in names}


class Given:
    """Any thread."""

    def __init__(self, configuration: Configuration) -> None:
        self._pickled = pickle.dumps(configuration)
        # Lists that grow, by the request that takes them: records with definitions, and schemas.
        self._shared: dict[str, list[tuple[Any, ...]]] = {"learn": []}

    def adopt(self, configuration: Configuration) -> None:
        """Use another configuration from now on. The processes get it with their next batch."""
        self._pickled = pickle.dumps(configuration)

    def noting(self, format_: Format) -> Format:
        """Return a format whose `learn` also reaches the processes, before they decode their next batch."""
        return cast(Format, Noting(format_, self._shared["learn"])) if hasattr(format_, "learn") else format_

    def share(self, formats: FormatChoice) -> None:
        """Give the processes the schemas of these formats, also later ones: the registry may be down then."""
        if formats.schemas is not None:
            self._shared["keep"] = cast(Any, formats.schemas.received)

    def give(self, process: Process) -> None:
        """Give the process the configuration, definitions and schemas that it lacks. Raises ProcessAway."""
        knows = process.knows
        lacking = [name for name, things in self._shared.items() if len(things) > knows.given[name]]
        if knows.given["configure"] is self._pickled and not lacking:
            return
        with knows.lock:
            if knows.given["configure"] is not (latest := self._pickled):
                _ask(process, "configure", latest)
                knows.given["configure"] = latest
            for name in lacking:
                while some := self._shared[name][knows.given[name] : knows.given[name] + _AT_ONCE]:
                    _ask(process, name, some)
                    knows.given[name] += len(some)

    def open(self, process: Process, opening: Opening) -> None:
        self.give(process)
        lock = process.knows.opening.setdefault(opening.number, threading.Lock())
        if not lock.acquire(blocking=False):  # others go on: it may take long, if its target is down
            raise ProcessAway(f"handler {opening.entry.name} is being opened", _AGAIN_SECONDS)
        try:
            if opening.number not in process.knows.handlers:
                _ask(process, "open", opening.number, *opening.packed())
                process.knows.handlers.add(opening.number)
        finally:
            lock.release()


def _ask(process: Process, name: str, *rest: Any) -> Any:
    try:
        return process.ask(name, *rest)
    except (EOFError, OSError) as error:
        raise ProcessAway(f"lane process {process.number} has ended: {process.how_ended}", 0.1) from error
