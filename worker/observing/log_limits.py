"""Events that may come with every record or batch: told some times a minute, then counted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import EventDict

STORMY = {
    "batch_failed": ("table",),
    "change_ignored": ("table",),
    "change_skipped": ("table", "handler"),
    "commit_without_spark_failed": ("table",),
    "dead_letter": ("table", "handler"),
    "definition_not_learned": (),
    "delta_rows_not_there": ("table",),
    "file_not_finished": (),
    "handler_failed": ("handler",),
    "http_accept_failed": (),
    "http_host_refused": (),
    "http_message_failed": (),
    "kafka_does_not_answer": (),
    "offset_not_told": ("partition",),
    "place_not_known": (),
    "record_skipped": ("position",),
    "spark_upkeep_failed": ("table",),
    "table_waits": ("table",),
    "target_down": ("handler",),
    "target_up": ("handler",),
}
"""Event -> the fields that say what it is about; of a position its topic and partition alone."""

_MINUTE = 60.0
_OF_SUBJECT = 10
_OF_EVENT = 100
_SUBJECTS = 1000
"""So many are told apart in a minute; the others count as one."""
_OTHERS = "others"
_NAMED = 5
"""So many subjects stand in a line that tells what was left out."""


@dataclass(slots=True)
class _Event:
    """What was said of one event since its minute began."""

    begun: float
    told: int = 0
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """For each how many lines were told, and how many left out."""
    before: Counter[str] = field(default_factory=Counter)
    """What earlier minutes left out, for the subject's next line."""
    since: float = 0.0
    """When the first of that began to wait."""


class LogLimits:
    """Ten lines a minute of one event about one subject, a hundred of one event; the rest is counted.

    A subject's next line says how many were left out before it (`repeated`). What has no next line is told by
    `due`. It holds at most a thousand subjects of each of these events. Any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._events: dict[str, _Event] = {}
        self._levels: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def admit(self, level: str, event: EventDict) -> bool:
        """Count the event. False: it is not to be told; else it knows how often it was left out before."""
        name = event["event"]
        fields = STORMY.get(name)
        with self._lock:
            self._levels[level] = self._levels.get(level, 0) + 1
            if fields is None:
                return True
            known = self._events.get(name)
            now = self._clock()
            if known is None:
                known = self._events[name] = _Event(now)
            elif now >= known.begun + _MINUTE:
                _next_minute(known, now)
            subject = " ".join([_text(event.get(each)) for each in fields])
            counts = known.subjects.get(subject)
            if counts is None:
                if len(known.subjects) >= _SUBJECTS:
                    subject = _OTHERS
                counts = known.subjects.setdefault(subject, [0, 0])
            if counts[0] >= _OF_SUBJECT or known.told >= _OF_EVENT:
                counts[1] += 1
                self._left_out[name] = self._left_out.get(name, 0) + 1
                return False
            counts[0] += 1
            known.told += 1
            repeated = known.before.pop(subject, 0)
        if repeated:
            event["repeated"] = repeated
        return True

    def due(self, *, all_of_it: bool = False) -> list[dict[str, Any]]:
        """The fields of a line for each event of which something was left out, and whose minute is over
        without a line that said so, or has been over for another; with `all_of_it` whatever was left out.
        They count as told."""
        found = []
        with self._lock:
            now = self._clock()
            for name, known in list(self._events.items()):
                over = all_of_it or now >= known.begun + _MINUTE
                if over:
                    _next_minute(known, now)
                elif not known.before or now < known.since + _MINUTE:
                    continue
                if known.before:
                    most = dict(known.before.most_common(_NAMED))
                    found.append({"of": name, "lines": known.before.total(), "most": most})
                if all_of_it or not over:
                    known.before = Counter()
                else:
                    del self._events[name]
        return found

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """{level: how many events, told or not}, {event: how many were not told}. Both only grow."""
        with self._lock:
            return dict(self._levels), dict(self._left_out)


def _next_minute(known: _Event, now: float) -> None:
    if not known.before:
        known.since = now
    known.before.update({subject: left_out for subject, (_, left_out) in known.subjects.items() if left_out})
    if len(known.before) > _SUBJECTS:
        kept = Counter(dict(known.before.most_common(_SUBJECTS - 1)))
        kept[_OTHERS] += known.before.total() - kept.total()
        known.before = kept
    known.subjects = {}
    known.begun, known.told = now, 0


def _text(value: object) -> str:
    return str(value).partition(" offset ")[0]
