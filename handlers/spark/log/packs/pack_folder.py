"""The folder of one stream of packs: numbered files, which one worker puts until somebody ends the stream.

00000000000000000007.pack       a pack; the last one says that the stream ends there, if it does
_removed/00000000000000000005   an empty file: numbers up to this one may have been used and removed

A number is put only if it is not there. So whoever puts an end at the number behind the last has stopped the
worker that puts the packs, be it slow, frozen, or cut off: its next put finds the number taken. That holds
only if the number was never used before, for packs are removed when nobody needs them any more; hence the
names in `_removed`, written before a pack goes, which whoever puts looks at after its put."""

from __future__ import annotations

import re
from collections.abc import Collection

from handlers.spark.log.segment_folder import UsedUp
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files

SHARED = "_shared"
"""The folder of all streams, in the folder of all logs."""
_NAME = re.compile(r"(\d{20})\.pack")
_STREAM = re.compile(r"[0-9a-f]{32}")


class StreamEnded(Exception):
    """The number was taken, or had been used: somebody has ended the stream."""


def is_stream(name: str) -> bool:
    """Whether a folder in SHARED is a stream's: a database may have that name, too."""
    return _STREAM.fullmatch(name) is not None


class PackFolder:
    """Any thread. Each method raises what the store raises."""

    def __init__(self, files: Files, logs: str, stream: str) -> None:
        """`logs`: the folder of all logs."""
        self.path = f"{logs}/{SHARED}/{stream}"
        self._files = files
        self._used_up = UsedUp(files, self.path)

    def place(self, number: int) -> str:
        return f"{self.path}/{number:020d}.pack"

    def put(self, number: int, data: bytes) -> None:
        """When this returns, the pack is durable and in the stream. Raises StreamEnded."""
        try:
            self._files.put(self.place(number), data)
        except AlreadyThere:
            raise StreamEnded(self.path) from None
        if number <= self.removed():
            self._files.delete(self.place(number))
            raise StreamEnded(self.path)

    def found(self) -> dict[int, Entry]:
        """The packs that are there."""
        entries = self._files.list(self.path)
        return {int(name[1]): each for each in entries if (name := _NAME.fullmatch(each.name)) is not None}

    def counting(self) -> dict[int, Entry]:
        """The same, without the last one that was removed: if it is there again, a worker that was frozen has
        put it, and takes it back."""
        found = self.found()
        found.pop(self.removed(), None)
        return found

    def removed(self) -> int:
        """Numbers up to this one may have been used, and their packs removed."""
        return self._used_up.last()

    def remove(self, numbers: Collection[int]) -> None:
        """Nobody needs these packs any more. The last of a stream is removed only with its end."""
        if not numbers:
            return
        self._used_up.tell(max(numbers))
        for number in sorted(numbers):
            self._files.delete(self.place(number))
