"""The marks of one table, as every segment of its log holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from handlers.api import Change
from handlers.progress.marks import BEFORE_ALL, WHOLE, Known, Partition, Place, beyond, reached
from handlers.progress.topic_ids import KnownIds, MadeAnew, TopicId, of_former
from handlers.spark.log.letters import Letters, Run, letter_of, row_of, with_letter

_VERSION = 1


class UnreadableMarks(ValueError):
    """A text is no marks, or those of a later version; the message tells which."""


class _Id(msgspec.Struct, omit_defaults=True):
    """Of partitions that have the same."""

    id: str | None
    partitions: list[int]
    former: tuple[str, ...] = ()


class _Written(msgspec.Struct, omit_defaults=True):
    v: int
    marks: dict[str, dict[int, dict[int, Place]]]
    """Topic -> partition -> shard (-1: the whole table) -> (offset, index)."""
    ids: dict[str, list[_Id]] = {}
    """Of topics; releases that do not know them leave them out of what they write."""
    letters: dict[str, dict[int, list[Run]]] = {}
    """Dead-letter topic (with an @) -> partition -> what was replayed of it."""


@dataclass(frozen=True, slots=True)
class Marks:
    """How far one table was applied; the rules are those of `handlers.progress.marks`. Equal when they say
    the same.

    >>> Marks()
    Marks(known={}, ids={}, letters={})
    """

    known: Known = field(default_factory=dict)
    """Partition -> shard -> mark; never changed."""
    ids: Mapping[Partition, TopicId] = field(default_factory=dict)
    """Which topics the marks are of, as far as that is known."""
    letters: Mapping[Partition, Letters] = field(default_factory=dict)
    """Partition of a dead-letter topic (its name with an @) -> what was replayed of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _without_covered(self.known))

    def followed(
        self, changes: Sequence[Change], topic_ids: Mapping[str, str], known_ids: KnownIds
    ) -> tuple[Marks, Sequence[MadeAnew]]:
        """The marks as a batch is to be looked at with them: without those of topics that were made anew
        since; and which these are. `topic_ids`: topic -> its id, where known; `known_ids` learns them. Raises
        FormerTopic."""
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
        """Let others of the handler know which topics there were."""
        for (topic, _), each in self.ids.items():
            known_ids.learn(topic, each)

    def names(self, change: Change) -> tuple[str, ...]:
        """The topic of a change by a name that no topic had before it; then the one that an earlier attempt
        may have used, which knew no id, or an earlier release: there is none where a former topic could have
        had it."""
        place = letter_of(change.topic, change.partition, change.offset) or (change.topic, change.partition)
        current, former = self.ids.get(place, TopicId())
        if current is None:
            return (change.topic,)
        return (f"{change.topic}@{current}", *(() if former else (change.topic,)))

    def beyond(self, changes: Sequence[Change], shard: int | None) -> tuple[Sequence[Change], Sequence[int]]:
        """Which of a batch's changes are not applied yet, and their places in it.

        `shard`: the batch's; None for a batch of the whole table."""
        return beyond(changes, self._known_of(changes), WHOLE if shard is None else shard)

    def advanced(self, changes: Sequence[Change], shard: int | None) -> Marks:
        """The marks once these changes, and all of the shard (or table) before them, are applied.

        A mark never goes back. A batch of the whole table comes when all before it is done, so marks of
        shards at or before its end are dropped."""
        own = WHOLE if shard is None else shard
        moved = reached(changes, self._known_of(changes), own)
        if not moved:
            return self
        known, letters = dict(self.known), dict(self.letters)
        for (topic, partition), place in moved.items():
            letter = letter_of(topic, partition, place[0])
            if letter is None:
                known[topic, partition] = {**known.get((topic, partition), {}), own: place}
            else:
                letters[letter] = with_letter(letters.get(letter, ()), *place)
        return Marks(known, self.ids, letters)

    def _known_of(self, changes: Sequence[Change]) -> Known:
        """The marks that changes are looked up in; a letter is replayed by itself."""
        if not changes:
            return self.known
        first = changes[0]
        letter = letter_of(first.topic, first.partition, first.offset)
        if letter is None:
            return self.known
        row = row_of(self.letters.get(letter, ()), first.offset)
        return {} if row is None else {(first.topic, first.partition): {WHOLE: (first.offset, row)}}

    def __hash__(self) -> int:
        return hash(self.to_json())

    def highest(self) -> dict[Partition, Place]:
        """The last applied change of each partition, whichever shard it was of; without letters."""
        return {partition: max(marks.values()) for partition, marks in self.known.items()}

    def to_json(self) -> str:
        """One line, the same for equal marks."""
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
            raise UnreadableMarks(f"not marks: {error}; found {_shortened(text)}") from None
        known: dict[Partition, Mapping[int, Place]] = {}
        letters = {
            (topic, partition): tuple(runs)
            for topic, partitions in written.letters.items()
            for partition, runs in partitions.items()
        }
        for topic, partitions in written.marks.items():
            for partition, marks in partitions.items():
                letter = letter_of(topic, partition, marks[WHOLE][0]) if WHOLE in marks else None
                if letter is None:
                    known[topic, partition] = marks
                else:  # an earlier release kept each as a topic
                    letters[letter] = with_letter(letters.get(letter, ()), *marks[WHOLE])
        ids = {
            (topic, partition): TopicId(each.id, each.former)
            for topic, found in written.ids.items()
            for each in found
            for partition in each.partitions
        }
        return cls(known, ids, letters)


def _topic_of(changes: Sequence[Change], topic: str, partition: int) -> Partition:
    """Whose id it is: of a letter, the dead-letter topic's."""
    return letter_of(topic, partition, changes[0].offset) or (topic, partition)


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
