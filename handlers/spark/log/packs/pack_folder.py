"""The folder of one stream of packs: numbered files, which one worker puts until somebody ends the stream.

- `00000000000000000007.pack`: a pack. The last one says if the stream ends there.
- `_removed/00000000000000000005`: an empty file. Numbers up to this one may have been used and removed.

A number can be put only if it is free. So an end, put at the number after the last, stops the stream's
worker, even if that is slow, frozen or cut off. Its next put finds the number taken. This holds only if the
number was never used before, but unneeded packs are removed. So a name in `_removed` is written before a pack
is removed, and every put checks these names afterwards."""

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
    """The number was taken or used before: somebody has ended the stream."""


def is_stream(name: str) -> bool:
    """Whether a folder in SHARED is a stream's. A database may be called SHARED, too."""
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
        """Put a pack. It is durable and in the stream when this returns. Raises StreamEnded."""
        try:
            self._files.put(self.place(number), data)
        except AlreadyThere:
            raise StreamEnded(self.path) from None
        if number <= self.removed():
            self._files.delete(self.place(number))
            raise StreamEnded(self.path)

    def found(self) -> dict[int, Entry]:
        """The existing packs, by number."""
        entries = self._files.list(self.path)
        return {int(name[1]): each for each in entries if (name := _NAME.fullmatch(each.name)) is not None}

    def counting(self) -> dict[int, Entry]:
        """The same without the last removed pack. If that exists again, a frozen worker has put it, and will
        remove it."""
        found = self.found()
        found.pop(self.removed(), None)
        return found

    def removed(self) -> int:
        """The number up to which numbers may have been used, and their packs removed."""
        return self._used_up.last()

    def remove(self, numbers: Collection[int]) -> None:
        """Remove packs that nobody needs. The last one of a stream is removed only after its end."""
        if not numbers:
            return
        self._used_up.tell(max(numbers))
        for number in sorted(numbers):
            self._files.delete(self.place(number))
