"""When a table was last optimized and vacuumed, whichever worker did it, and however often workers start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from handlers.spark.log.stores.interface import AlreadyThere, Files

_FOLDER = "_upkeep"
_NAME = re.compile(r"([a-z]+)-(\d{12})")


class UpkeepTimes:
    """Of one table: names of empty files in the folder `_upkeep` of its log, such as `vacuum-001790000000`.

    A time is in a name, as what is put is never written over, and the newest counts: so there is no moment
    without one. Times are seconds since 1970 in UTC, by the clock of the worker that did it."""

    def __init__(self, files: Files, log_folder: str) -> None:
        self._files = files
        self._folder = f"{log_folder}/{_FOLDER}"

    def last(self, what: str) -> float | None:
        """When `what` was last done; None: nobody knows. Raises what the store raises."""
        return max((float(name[-12:]) for name in self._names(what)), default=None)

    def remember(self, what: str, moment: float) -> None:
        """`what` (small letters) is done now. Raises what the store raises."""
        now = f"{what}-{int(moment):012d}"
        before = [name for name in self._names(what) if name != now]
        with suppress(AlreadyThere):
            self._files.put(f"{self._folder}/{now}", b"")
        for name in before:
            self._files.delete(f"{self._folder}/{name}")

    def _names(self, what: str) -> Iterator[str]:
        for entry in self._files.list(self._folder):
            name = _NAME.fullmatch(entry.name)
            if name is not None and name[1] == what:
                yield entry.name
