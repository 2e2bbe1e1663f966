"""Where a start begins."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.finished import Found
from offsets.restore import (
    Initial,
    Source,
    Start,
    StartOffset,
    began_with,
    choose_start,
    choose_starts,
    needs_the_rest_of,
)
from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, Committed, Mark, OffsetRange, TopicPartition

SHOP = TopicPartition("cdc.shop", 0)
TEN_O_CLOCK = datetime(2026, 3, 1, 10, tzinfo=UTC)


def ranges(*pairs: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(*pair) for pair in pairs)


def kafka(offset: int, *pairs: tuple[int, int], stamp: int = 1, topic_id: str | None = None) -> Committed:
    """What Kafka holds; another stamp makes it another commit."""
    return Committed(Checkpoint(offset, ranges(*pairs), topic_id), Mark(offset, stamp))


FILE = FileEntry(100, ranges((110, 120)), Mark(90, 1))
AGREED = FileEntry(100, ranges((110, 120)), Mark(100, 1))
NOT_ACKNOWLEDGED = FileEntry(100, ranges((110, 120)))
OLD = FileEntry(100, ranges((110, 120)), Mark(100, None))


@pytest.mark.parametrize(
    ("file", "kafka", "offset", "ahead", "source", "said"),
    [
        pytest.param(
            None, None, "earliest", (), "initial",
            "neither the local file nor Kafka knows this partition; checkpoint.initial is earliest",
            id="nobody knows: initial",
        ),
        pytest.param(
            FILE, None, 100, FILE.ahead, "file", "Kafka has no committed offset",
            id="Kafka has none: the file",
        ),
        pytest.param(
            AGREED, kafka(100), 100, FILE.ahead, "file", "agree on 100",
            id="Kafka holds what this file committed: the file, whatever did not fit into the metadata",
        ),
        pytest.param(
            AGREED, kafka(100, (110, 115), stamp=2), 100, ranges((110, 115)), "kafka", "another worker",
            id="the same offset by another commit: another worker repeats what it does not name",
        ),
        pytest.param(
            NOT_ACKNOWLEDGED, kafka(100), 100, (), "kafka", "acknowledged: nothing",
            id="the same offset, and nothing tells whose: Kafka's ranges",
        ),
        pytest.param(
            NOT_ACKNOWLEDGED, kafka(100, (110, 120)), 100, FILE.ahead, "file", "agree on 100",
            id="the same offset and ranges although the acknowledgement was never written: both",
        ),
        pytest.param(
            FILE, kafka(90, (95, 99)), 100, FILE.ahead, "file", "the last commit did not arrive",
            id="Kafka holds the commit before the last: the file",
        ),
        pytest.param(
            FILE, kafka(90, (95, 99), stamp=2), 90, ranges((95, 99)), "kafka", "another worker",
            id="Kafka holds another commit at the offset before the last: Kafka",
        ),
        pytest.param(
            FILE, kafka(95, (97, 98)), 95, ranges((97, 98)), "kafka", "moved",
            id="Kafka stands between: moved",
        ),
        pytest.param(
            FILE, kafka(0), 0, (), "kafka", "moved",
            id="Kafka was set back: moved",
        ),
        pytest.param(
            FILE, kafka(500), 500, (), "kafka", "another worker",
            id="Kafka is further: another worker went on",
        ),
        pytest.param(
            NOT_ACKNOWLEDGED, kafka(90), 90, (), "kafka", "acknowledged: nothing",
            id="Kafka has what this file never committed",
        ),
        pytest.param(
            None, kafka(40, (50, 60)), 40, ranges((50, 60)), "kafka",
            "the local file does not know this partition",
            id="no file: Kafka",
        ),
        pytest.param(
            FileEntry(0), None, 0, (), "file", "says 0",
            id="offset 0 is a position like any other",
        ),
        pytest.param(
            OLD, kafka(100, (110, 115)), 100, ranges((110, 115)), "kafka",
            "acknowledged: 100) is from an earlier binlane",
            id="an older file, whose mark is only an offset: Kafka's ranges",
        ),
        pytest.param(
            FileEntry(100, ranges((110, 120)), Mark(90, None)), kafka(90), 90, (), "kafka",
            "acknowledged: 90",
            id="an older file, and Kafka may have been committed to by another worker: Kafka",
        ),
        pytest.param(
            FileEntry(100, ranges((110, 120)), Mark(100, 0)), kafka(100, stamp=0), 100, (), "kafka",
            "no metadata, like another worker's",
            id="a commit without metadata, like any other at its offset: nothing is taken for finished ahead",
        ),
        pytest.param(
            FileEntry(100, (), Mark(90, 0)), kafka(90, stamp=0), 90, (), "kafka",
            "no metadata, like another worker's",
            id="a commit without metadata before the last: another worker may have repeated from there",
        ),
        pytest.param(
            FileEntry(100, (), Mark(100, 0)), kafka(100, stamp=0), 100, (), "file", "agree on 100",
            id="a commit without metadata, and nothing finished beyond it",
        ),
        pytest.param(
            OLD, None, 100, FILE.ahead, "file", "Kafka has no committed offset",
            id="an older file, and no committed offset: the file",
        ),
    ],
)  # fmt: skip
def test_the_rule(
    *,
    file: FileEntry | None,
    kafka: Committed | None,
    offset: StartOffset,
    ahead: tuple[OffsetRange, ...],
    source: Source,
    said: str,
) -> None:
    start = choose_start(SHOP, force=False, initial="earliest", file=file, kafka=kafka)
    assert (start.offset, start.ahead, start.source) == (offset, ahead, source)
    assert said in start.reason


def in_file(offset: int, topic_id: str | None, acknowledged: Mark | None = None) -> FileEntry:
    return FileEntry(offset, ranges((110, 120)), acknowledged, topic_id)


@pytest.mark.parametrize(
    ("file", "kafka", "today", "offset", "source"),
    [
        pytest.param(in_file(100, "one"), None, "two", "earliest", "new topic", id="the file's is another"),
        pytest.param(in_file(100, "one"), None, "one", 100, "file", id="the same topic"),
        pytest.param(in_file(100, "one"), None, None, 100, "file", id="today's cannot be told"),
        pytest.param(in_file(100, None), None, "two", 100, "file", id="the file's was never told"),
        pytest.param(
            in_file(100, "one", Mark(100, 1)), kafka(100, topic_id="one"), "two", "earliest", "new topic",
            id="both are of another, which Kafka has not yet dropped",
        ),
        pytest.param(
            in_file(100, "one", Mark(100, 1)), kafka(100), "two", "earliest", "new topic",
            id="Kafka holds what the file's topic had, without its id",
        ),
        pytest.param(
            in_file(100, "one"), kafka(7, topic_id="two"), "two", 7, "kafka",
            id="another worker went on in the new one",
        ),
        pytest.param(in_file(100, "one"), kafka(7, stamp=9), "two", 7, "kafka", id="somebody moved it there"),
        pytest.param(
            in_file(100, "one", Mark(100, 1)), kafka(7, topic_id="two"), None, 7, "kafka",
            id="today's cannot be told: Kafka forgets a topic's offsets with it, the file does not",
        ),
        pytest.param(None, kafka(7, topic_id="one"), "two", "earliest", "new topic", id="Kafka's is another"),
        pytest.param(None, kafka(7), "two", 7, "kafka", id="Kafka's was never told"),
    ],
)  # fmt: skip
def test_what_was_remembered_of_another_topic_of_that_name_is_left_out(
    file: FileEntry | None, kafka: Committed | None, today: str | None, offset: StartOffset, source: Source
) -> None:
    start = choose_start(SHOP, force=False, initial="latest", file=file, kafka=kafka, topic_id=today)
    assert (start.offset, start.source) == (offset, source)
    if source == "new topic":
        assert start.ahead == ()
        assert start.earlier is not None
        assert "id one, but the present id is two" in start.reason


@pytest.mark.parametrize(
    ("began", "offset"),
    [(None, "latest"), (1, "latest"), (0, "earliest")],
    ids=["the group never read the topic", "it was there from the first", "it was added later"],
)
@pytest.mark.parametrize("initial", ["latest", TEN_O_CLOCK])
def test_initial_is_of_the_group_and_not_of_each_partition(
    initial: Initial, began: int | None, offset: str
) -> None:
    start = choose_start(SHOP, force=False, initial=initial, file=None, kafka=None, began_with=began)
    assert start.offset == (initial if offset == "latest" else "earliest")
    assert ("added later" in start.reason) == (offset == "earliest")


def test_an_offset_named_for_a_partition_counts_for_one_that_was_added_later_too() -> None:
    named: Initial = {"cdc.shop": {0: 77}}
    start = choose_start(SHOP, force=False, initial=named, file=None, kafka=None, began_with=0)
    assert start.offset == 77


def test_members_that_begin_together_begin_at_initial_and_what_is_added_later_at_its_beginning() -> None:
    """One commits its first position before another asks for its own."""

    def starts(*numbers: int, kafka: dict[TopicPartition, Committed], count: int) -> dict[int, Start]:
        partitions = [TopicPartition("cdc.shop", number) for number in numbers]
        found = choose_starts(
            partitions,
            forced=lambda _: False,
            initial="latest",
            file={},
            kafka=kafka,
            topic_ids={"cdc.shop": "one"},
            counts={"cdc.shop": count},
        )
        return {place.partition: start for place, start in found.items()}

    first = starts(0, kafka={}, count=2)[0]
    assert (first.offset, first.began_with) == ("latest", 2)
    known = {SHOP: Committed(Checkpoint(50, (), "one", first.began_with), Mark(50, 1))}
    second = starts(1, kafka=known, count=2)[1]
    assert (second.offset, second.began_with) == ("latest", 2)
    third = starts(2, kafka=known, count=3)[2]
    assert (third.offset, third.began_with) == ("earliest", 2)
    anew = {SHOP: Committed(Checkpoint(50, (), "before", 2), Mark(50, 1))}
    assert {(each.offset, each.began_with) for each in starts(0, 1, kafka=anew, count=2).values()} == {
        ("earliest", 0)
    }


def test_all_partitions_are_looked_at_only_where_that_tells_something() -> None:
    stock = TopicPartition("cdc.stock", 1)
    assert needs_the_rest_of([SHOP, stock], "latest", {SHOP: 1}, {}) == {"cdc.stock"}
    assert needs_the_rest_of([SHOP, stock], TEN_O_CLOCK, {}, {stock: 1}) == {"cdc.shop"}
    assert needs_the_rest_of([SHOP, stock], "earliest", {}, {}) == set()
    assert needs_the_rest_of([SHOP, stock], {"cdc.shop": {0: 7}}, {}, {}) == set()


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([Checkpoint(5, (), "one", 3)], 3),
        ([Checkpoint(5, (), "one", 3), Checkpoint(5, (), "one", 2)], 2),
        ([Checkpoint(5, (), "one", 3), Checkpoint(5)], 0),
        ([Checkpoint(5, (), "other", 3)], 0),
    ],
    ids=["nothing known", "one knows", "the fewest", "one does not know", "of another topic"],
)
def test_what_the_group_began_with_is_told_by_any_partition(
    known: list[Checkpoint], expected: int | None
) -> None:
    assert began_with(known, "one") == expected


@pytest.mark.parametrize(
    ("initial", "offset", "said"),
    [
        ("earliest", "earliest", "checkpoint.initial is earliest"),
        ("latest", "latest", "checkpoint.initial is latest"),
        (TEN_O_CLOCK, TEN_O_CLOCK, "checkpoint.initial is 2026-03-01T10:00:00+00:00"),
        ({"cdc.shop": {0: 77}}, 77, "checkpoint.initial is 77"),
        ({"cdc.shop": {0: 0}}, 0, "checkpoint.initial is 0"),
        ({"cdc.shop": {1: 77}}, "earliest", "does not name cdc.shop[0]: earliest"),
        ({"other": {0: 77}}, "earliest", "does not name cdc.shop[0]: earliest"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_initial_is_an_end_a_time_or_an_offset(
    initial: Initial, offset: StartOffset, said: str, force: bool
) -> None:
    file, kafka = (FILE, Committed(Checkpoint(100), Mark(100, 1))) if force else (None, None)
    start = choose_start(SHOP, force=force, initial=initial, file=file, kafka=kafka)
    assert (start.offset, start.ahead, start.source) == (offset, (), "force" if force else "initial")
    assert said in start.reason
    assert ("checkpoint.force is set" in start.reason) == force


NAMED = FileEntry(100, ranges((110, 120)), Mark(90, 1), "id", None, "0123456789abcdef:1:1")
MORE = Found(ranges((100, 103), (105, 112), (150, 151)), frozenset({Mark(95, 7), Mark(103, 8)}))


@pytest.mark.parametrize(
    ("held", "offset", "ahead", "source"),
    [
        pytest.param(None, 103, ranges((105, 120), (150, 151)), "file", id="Kafka has none"),
        pytest.param(
            kafka(90), 103, ranges((105, 120), (150, 151)), "file", id="Kafka holds what the file knows"
        ),
        pytest.param(
            kafka(95, (96, 97), stamp=7), 103, ranges((105, 120), (150, 151)), "file",
            id="Kafka holds a commit that was sent, and of whose answer the file tells nothing",
        ),
        pytest.param(
            kafka(103, (105, 106), stamp=8), 103, ranges((105, 120), (150, 151)), "file",
            id="one that is ahead of the file, which could not be written",
        ),
        pytest.param(
            kafka(100, (110, 120), stamp=9), 100, ranges((110, 120)), "file",
            id="the same by another: what it finished and did not commit may have come before",
        ),
        pytest.param(kafka(90, stamp=9), 90, (), "kafka", id="another worker's, or moved"),
        pytest.param(kafka(103, (105, 106), stamp=9), 103, ranges((105, 106)), "kafka", id="moved on"),
        pytest.param(
            kafka(95, (96, 97), stamp=7, topic_id="other"), 95, ranges((96, 97)), "kafka",
            id="of another topic than the file",
        ),
    ],
)  # fmt: skip
def test_what_the_map_remembers_counts_only_while_nobody_else_can_have_been_there(
    held: Committed | None, offset: int, ahead: tuple[OffsetRange, ...], source: Source
) -> None:
    start = choose_start(SHOP, force=False, initial="earliest", file=NAMED, kafka=held, window=MORE)
    assert (start.offset, start.ahead, start.source) == (offset, ahead, source)
    assert ("according to the map of finished offsets" in start.reason) == (
        offset == 103 and source == "file"
    )


def test_commits_without_metadata_tell_nothing_of_the_map() -> None:
    bare = kafka(90, stamp=0)
    file = FileEntry(100, (), Mark(90, 0), None, None, NAMED.window)
    window = Found(MORE.ranges, frozenset({Mark(90, 0)}))
    start = choose_start(SHOP, force=False, initial="earliest", file=file, kafka=bare, window=window)
    assert (start.offset, start.ahead, start.source) == (90, (), "kafka")


def test_a_start_that_is_forced_and_a_topic_made_anew_know_nothing_of_the_map() -> None:
    forced = choose_start(SHOP, force=True, initial="earliest", file=NAMED, kafka=None, window=MORE)
    assert (forced.offset, forced.ahead) == ("earliest", ())
    anew = choose_start(
        SHOP, force=False, initial="latest", file=NAMED, kafka=None, window=MORE, topic_id="other"
    )
    assert (anew.offset, anew.ahead, anew.source) == ("earliest", (), "new topic")


def test_each_partition_has_the_window_that_its_own_entry_names() -> None:
    other = TopicPartition("cdc.shop", 1)
    starts = choose_starts(
        [SHOP, other],
        forced=lambda _: False,
        initial="earliest",
        file={SHOP: NAMED, other: FileEntry(7)},
        kafka={},
        topic_ids={},
        counts={},
        windows={"0123456789abcdef:1:1": MORE, "0123456789abcdef:2:1": MORE},
    )
    assert [starts[each].offset for each in (SHOP, other)] == [103, 7]


OFFSETS = st.integers(0, 30)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    offset = place = draw(OFFSETS)
    ahead = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=6)):
        ahead.append(OffsetRange(place + gap, place + gap + length))
        place += gap + length
    return Checkpoint(offset, tuple(ahead))


@given(st.none() | checkpoints(), st.none() | OFFSETS, st.none() | checkpoints(), st.integers(1, 2))
def test_nothing_is_skipped_that_no_store_calls_finished(
    in_file: Checkpoint | None, acknowledged: int | None, in_kafka: Checkpoint | None, stamp: int
) -> None:
    mark = None if acknowledged is None else Mark(acknowledged, 1)
    file = None if in_file is None else FileEntry(in_file.offset, in_file.ahead, mark)
    committed = None if in_kafka is None else Committed(in_kafka, Mark(in_kafka.offset, stamp))
    start = choose_start(SHOP, force=False, initial="earliest", file=file, kafka=committed)
    if not isinstance(start.offset, int):
        assert (file, committed, start.ahead) == (None, None, ())
        return
    chosen = in_kafka if start.source == "kafka" else in_file
    assert Checkpoint(start.offset, start.ahead) == chosen
    if start.source == "file" and committed is not None:
        assert committed.mark == mark or in_kafka == in_file
