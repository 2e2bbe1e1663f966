"""The marks of one table, which every segment of its log contains."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from handlers.api import Change
from handlers.progress import (
    BEFORE_ALL,
    WHOLE,
    Known,
    KnownIds,
    MadeAnew,
    Partition,
    Place,
    TopicId,
    beyond,
    of_former,
    reached,
)

_LETTER = re.compile("(.*@)([0-9]+)", re.DOTALL)
"""Names of Kafka's topics contain no @."""
_RUNS = 1000
"""The most runs per partition of the dead-letter topic, at some ten bytes each in every segment."""
_VERSION = 1


class Run(NamedTuple):
    """Successive letters."""

    first: int
    last: int
    row: int
    """The last applied row of each letter's record."""


Letters = tuple[Run, ...]
"""The runs of one partition of the dead-letter topic, ascending."""


def _letter_of(topic: str, partition: int, offset: int) -> Partition | None:
    """Return the dead-letter topic (its name with an @) and partition of a replayed change, else None.

    >>> letter_of("cdc.dead@17", 0, 17)
    ('cdc.dead@', 0)
    """
    found = _LETTER.fullmatch(topic) if "@" in topic else None
    return (found[1], partition) if found is not None and int(found[2]) == offset else None


def row_of(letters: Letters, offset: int) -> int | None:
    """Return the last applied row of a letter. None if no row was applied."""
    place = bisect_right(letters, offset, key=lambda run: run.first) - 1
    if place < 0 or letters[place].last < offset:
        return None
    return letters[place].row


def with_letter(letters: Letters, offset: int, row: int) -> Letters:
    """Return the runs with this letter applied up to a row. If there are too many, the lowest are dropped.

    >>> with_letter((Run(3, 4, 0), Run(6, 9, 0)), 5, 0)
    (Run(first=3, last=9, row=0),)

    >>> with_letter((Run(3, 9, 0),), 5, 2)
    (Run(first=3, last=4, row=0), Run(first=5, last=5, row=2), Run(first=6, last=9, row=0))
    """
    return _joined([*_without(letters, offset), Run(offset, offset, row)])[-_RUNS:]


def _without(letters: Iterable[Run], offset: int) -> Iterable[Run]:
    for run in letters:
        if not run.first <= offset <= run.last:
            yield run
            continue
        if run.first < offset:
            yield Run(run.first, offset - 1, run.row)
        if offset < run.last:
            yield Run(offset + 1, run.last, run.row)


def _joined(runs: Iterable[Run]) -> Letters:
    joined: list[Run] = []
    for run in sorted(runs):
        before = joined[-1] if joined else None
        if before is not None and (before.last + 1, before.row) == (run.first, run.row):
            joined[-1] = Run(before.first, run.last, run.row)
        else:
            joined.append(run)
    return tuple(joined)


class UnreadableMarks(ValueError):
    """A text is not marks, or marks of a later version. The message says which."""


class _Id(msgspec.Struct, omit_defaults=True):
    """The topic id of partitions that share it."""

    id: str | None
    partitions: list[int]
    former: tuple[str, ...] = ()


class _Written(msgspec.Struct, omit_defaults=True):
    v: int
    marks: dict[str, dict[int, dict[int, Place]]]
    """Topic -> partition -> shard (-1: the whole table) -> (offset, index)."""
    ids: dict[str, list[_Id]] = {}
    """Ids of topics. Earlier releases do not know them and leave them out."""
    letters: dict[str, dict[int, list[Run]]] = {}
    """Dead-letter topic (with an @) -> partition -> replayed runs."""


_read_written = msgspec.json.Decoder(_Written).decode


@dataclass(frozen=True, slots=True)
class Marks:
    """How far one table was applied, by the rules of `handlers.progress`. Equal marks have equal
    content.

    >>> Marks()
    Marks(known={}, ids={}, letters={})
    """

    known: Known = field(default_factory=dict)
    """Partition -> shard -> mark. Never changed."""
    ids: Mapping[Partition, TopicId] = field(default_factory=dict)
    """The ids of the topics that the marks belong to, as far as known."""
    letters: Mapping[Partition, Letters] = field(default_factory=dict)
    """Partition of a dead-letter topic (its name with an @) -> replayed runs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _without_covered(self.known))

    def followed(
        self, changes: Sequence[Change], topic_ids: Mapping[str, str], known_ids: KnownIds
    ) -> tuple[Marks, Sequence[MadeAnew]]:
        """Return the marks for a batch, without those of topics that were recreated since, and these topics.
        `topic_ids`: topic -> its id, if known. `known_ids` learns them. Raises FormerTopic."""
        found: dict[Partition, str] = {}
        if topic_ids:
            for topic, partition in {(change.topic, change.partition) for change in changes}:
                if topic in topic_ids:
                    found[_topic_of(changes, topic, partition)] = topic_ids[topic]
        before = {place: self.ids.get(place, TopicId()) for place in found}
        if all(before[place].current == topic_id for place, topic_id in found.items()):
            return self, ()
        now = {
            place: known_ids.followed([before[place]], place, topic_id) for place, topic_id in found.items()
        }
        Marks(ids=now).teach(known_ids)
        anew = [place for place, each in now.items() if not each.covers(before[place])]
        known = {place: marks for place, marks in self.known.items() if place not in anew}
        letters = {place: runs for place, runs in self.letters.items() if place not in anew}
        told = of_former({place: [each] for place, each in before.items()}, now)
        return Marks(known, {**self.ids, **now}, letters), told

    def teach(self, known_ids: KnownIds) -> None:
        """Report the known topic ids to other tables of the handler."""
        for (topic, _), each in self.ids.items():
            known_ids.learn(topic, each)

    def names(self, change: Change) -> tuple[str, ...]:
        """Return names of a change's topic: first a name that no earlier topic had. Then the plain name,
        which an earlier attempt without ids, or an earlier release, may have used. It is left out if a former
        topic could have had it."""
        place = _letter_of(change.topic, change.partition, change.offset) or (change.topic, change.partition)
        current, former = self.ids.get(place, TopicId())
        if current is None:
            return (change.topic,)
        return (f"{change.topic}@{current}", *(() if former else (change.topic,)))

    def beyond(self, changes: Sequence[Change], shard: int | None) -> tuple[Sequence[Change], Sequence[int]]:
        """Return those of a batch's changes that are not applied yet, and their places in the batch.

        `shard`: the batch's. None for a batch of the whole table."""
        return beyond(changes, self._known_of(changes), WHOLE if shard is None else shard)

    def advanced(self, changes: Sequence[Change], shard: int | None) -> Marks:
        """Return the marks after these changes, and all earlier ones of the shard (or table), are applied.

        A mark never goes back. A batch of the whole table arrives when everything before it is done. So marks
        of shards at or before its end are dropped."""
        own = WHOLE if shard is None else shard
        moved = reached(changes, self._known_of(changes), own)
        if not moved:
            return self
        known, letters = dict(self.known), dict(self.letters)
        for (topic, partition), place in moved.items():
            letter = _letter_of(topic, partition, place[0])
            if letter is None:
                known[topic, partition] = {**known.get((topic, partition), {}), own: place}
            else:
                letters[letter] = with_letter(letters.get(letter, ()), *place)
        return Marks(known, self.ids, letters)

    def _known_of(self, changes: Sequence[Change]) -> Known:
        """The marks for looking up these changes. A letter is replayed alone."""
        if not changes:
            return self.known
        first = changes[0]
        letter = _letter_of(first.topic, first.partition, first.offset)
        if letter is None:
            return self.known
        row = row_of(self.letters.get(letter, ()), first.offset)
        return {} if row is None else {(first.topic, first.partition): {WHOLE: (first.offset, row)}}

    def __hash__(self) -> int:
        return hash(self.to_json())

    def highest(self) -> dict[Partition, Place]:
        """The last applied change of each partition, of any shard, without letters."""
        return {partition: max(marks.values()) for partition, marks in self.known.items()}

    def to_json(self) -> str:
        """Return one line, the same for equal marks."""
        marks: dict[str, dict[int, dict[int, Place]]] = {}
        for (topic, partition), known in sorted(self.known.items()):
            marks.setdefault(topic, {})[partition] = dict(sorted(known.items()))
        by_id: dict[tuple[str, TopicId], list[int]] = {}
        for (topic, partition), topic_id in sorted(self.ids.items()):
            by_id.setdefault((topic, topic_id), []).append(partition)
        ids: dict[str, list[_Id]] = {}
        for (topic, (current, former)), partitions in by_id.items():
            ids.setdefault(topic, []).append(_Id(current, partitions, former))
        letters: dict[str, dict[int, list[Run]]] = {}
        for (topic, partition), runs in sorted(self.letters.items()):
            letters.setdefault(topic, {})[partition] = list(runs)
        return msgspec.json.encode(_Written(_VERSION, marks, ids, letters)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Marks:
        """Read what `to_json` wrote. Raises UnreadableMarks."""
        try:
            version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("v", msgspec.Raw(b"null"))
            if bytes(version) != str(_VERSION).encode():
                found = bytes(version).decode()
                raise UnreadableMarks(
                    f"marks of version {found} cannot be read: this binlane knows version {_VERSION}. "
                    "Run the release that wrote them, or a later one"
                )
            written = _read_written(text)
        except msgspec.MsgspecError as error:
            raise UnreadableMarks(f"not marks: {error}; found {_shortened(text)}") from None
        known: dict[Partition, Mapping[int, Place]] = {}
        letters = {
            (topic, partition): tuple(runs)
            for topic, partitions in written.letters.items()
            for partition, runs in partitions.items()
        }
        for topic, partitions in written.marks.items():
            for partition, marks in partitions.items():
                letter = _letter_of(topic, partition, marks[WHOLE][0]) if WHOLE in marks else None
                if letter is None:
                    known[topic, partition] = marks
                else:  # an earlier release kept each letter as a topic
                    letters[letter] = with_letter(letters.get(letter, ()), *marks[WHOLE])
        ids = {
            (topic, partition): TopicId(each.id, each.former)
            for topic, found in written.ids.items()
            for each in found
            for partition in each.partitions
        }
        return cls(known, ids, letters)


def _topic_of(changes: Sequence[Change], topic: str, partition: int) -> Partition:
    """The topic and partition of an id. For a letter, those of the dead-letter topic."""
    return _letter_of(topic, partition, changes[0].offset) or (topic, partition)


def _without_covered(known: Known) -> Known:
    """Remove marks of shards that the whole table's mark covers, because they add nothing."""
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
