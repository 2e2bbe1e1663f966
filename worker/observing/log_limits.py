"""Limit events that may occur for every record or batch: log a few each minute, count the rest."""

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
    "dead_letter": ("table", "handler"),
    "definition_not_learned": (),
    "delta_rows_not_there": ("table",),
    "event_loop_blocked": ("table",),
    "expectation_failed": ("table",),
    "file_not_finished": (),
    "handler_failed": ("handler",),
    "headers_unreadable": ("position",),
    "http_accept_failed": (),
    "http_host_refused": (),
    "http_message_failed": (),
    "kafka_does_not_answer": (),
    "offset_not_told": ("partition",),
    "pauses_unreadable": (),
    "place_not_known": (),
    "record_skipped": ("position",),
    "spark_upkeep_failed": ("table",),
    "sql_row_not_there": ("table",),
    "table_waits": ("table",),
    "target_down": ("handler",),
    "target_up": ("handler",),
    "transaction_cut": ("table",),
}
"""Event -> the fields that identify its subject. Of a position, only the topic and partition count."""

_MINUTE = 60.0
_OF_SUBJECT = 10
_OF_EVENT = 100
_SUBJECTS = 1000
"""The most subjects that are distinguished in a minute. The others count as one."""
_OTHERS = "others"
_NAMED = 5
"""The most subjects that a summary of omitted lines names."""


@dataclass(slots=True)
class _Event:
    """The counts of one event since its minute began."""

    begun: float
    told: int = 0
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """For each subject: the number of logged and of omitted lines."""
    before: Counter[str] = field(default_factory=Counter)
    """Lines omitted in earlier minutes, to be reported by the subject's next line."""
    since: float = 0.0
    """The time since which these have been waiting."""


class LogLimits:
    """Log at most ten lines a minute per event and subject, and a hundred per event. Count the rest.

    A subject's next line reports how many were omitted before it (`repeated`). If there is no next line,
    `due` reports them. At most a thousand subjects are kept per event. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards all fields below
        self._events: dict[str, _Event] = {}
        self._levels: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def admit(self, level: str, event: EventDict) -> bool:
        """Count the event. Return whether to log it, after setting how many were omitted before."""
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
            subject = " ".join([str(event.get(each)).partition(" offset ")[0] for each in fields])
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
        """Return log fields that summarize each event with omitted lines, and mark these as reported. An
        event is due if its minute is over, or if its omitted lines waited a minute for a next line.
        `all_of_it`: all are due."""
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
        """Return {level: events, logged or not} and {event: omitted lines}. Both only grow."""
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
