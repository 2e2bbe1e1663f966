"""The marks of one table, as every segment of its log holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from handlers.api import Change
from handlers.marks import BEFORE_ALL, WHOLE, Known, Partition, Place, beyond, reached

__all__ = ["Marks", "UnreadableMarks"]

_VERSION = 1


class UnreadableMarks(ValueError):
    """A text is no marks, or those of a later version; the message tells which."""


class _Written(msgspec.Struct):
    v: int
    marks: dict[str, dict[int, dict[int, Place]]]
    """Topic -> partition -> shard (-1: the whole table) -> (offset, index)."""


@dataclass(frozen=True, slots=True)
class Marks:
    """How far one table was applied; the rules are those of `handlers.marks`. Equal when they say the same.

    >>> Marks()
    Marks(known={})
    """

    known: Known = field(default_factory=dict)
    """Partition -> shard -> mark; never changed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _without_covered(self.known))

    def beyond(self, changes: Sequence[Change], shard: int | None) -> tuple[Sequence[Change], Sequence[int]]:
        """Which of a batch's changes are not applied yet, and their places in it.

        `shard`: the batch's; None for a batch of the whole table.
        """
        return beyond(changes, self.known, WHOLE if shard is None else shard)

    def advanced(self, changes: Sequence[Change], shard: int | None) -> Marks:
        """The marks once these changes, and all of the shard (or table) before them, are applied.

        A mark never goes back. A batch of the whole table comes when all before it is done, so marks of
        shards at or before its end are dropped.
        """
        own = WHOLE if shard is None else shard
        moved = reached(changes, self.known, own)
        if not moved:
            return self
        known = dict(self.known)
        for partition, place in moved.items():
            known[partition] = {**known.get(partition, {}), own: place}
        return Marks(known)

    def __or__(self, other: Marks) -> Marks:
        """What at least one of the two has applied."""
        known: dict[Partition, Mapping[int, Place]] = dict(self.known)
        for partition, theirs in other.known.items():
            mine = known.get(partition, {})
            known[partition] = {
                shard: max(mine.get(shard, BEFORE_ALL), theirs.get(shard, BEFORE_ALL))
                for shard in {**mine, **theirs}
            }
        return Marks(known)

    def __hash__(self) -> int:
        return hash(self.to_json())

    def highest(self) -> dict[Partition, Place]:
        """The last applied change of each partition, whichever shard it was of."""
        return {partition: max(marks.values()) for partition, marks in self.known.items()}

    def to_json(self) -> str:
        """One line, the same for equal marks."""
        marks: dict[str, dict[int, dict[int, Place]]] = {}
        for (topic, partition), known in sorted(self.known.items()):
            marks.setdefault(topic, {})[partition] = dict(sorted(known.items()))
        return msgspec.json.encode(_Written(_VERSION, marks)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Marks:
        """Raises UnreadableMarks."""
        try:
            version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("v", msgspec.Raw(b"null"))
            if bytes(version) != str(_VERSION).encode():
                found = bytes(version).decode()
                raise UnreadableMarks(
                    f"marks of version {found} cannot be read: this binlane knows version {_VERSION}. "
                    "Run the release that wrote them, or a later one"
                )
            written = msgspec.json.decode(text, type=_Written)
        except msgspec.MsgspecError as error:
            raise UnreadableMarks(f"no marks: {error}; found {_shortened(text)}") from None
        return cls(
            {
                (topic, partition): known
                for topic, partitions in written.marks.items()
                for partition, known in partitions.items()
            }
        )


def _without_covered(known: Known) -> Known:
    """Marks of shards that the whole table's mark covers say nothing."""
    if not any(_covered(marks) for marks in known.values()):
        return known
    return {
        partition: {shard: marks[shard] for shard in set(marks).difference(_covered(marks))}
        for partition, marks in known.items()
    }


def _covered(marks: Mapping[int, Place]) -> Iterable[int]:
    whole = marks.get(WHOLE, BEFORE_ALL)
    return [shard for shard, place in marks.items() if shard != WHOLE and place <= whole]


def _shortened(text: str | bytes) -> str:
    shown = text if isinstance(text, str) else text.decode(errors="replace")
    return repr(shown if len(shown) <= 80 else shown[:80] + " ...")
