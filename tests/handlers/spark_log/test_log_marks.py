"""Marks tell which changes of a batch are applied already."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lab import change

from handlers import Change
from handlers.progress import WHOLE, FormerTopic, KnownIds, TopicId
from handlers.rows import shard_of
from handlers.spark.log.marks import Letters, Marks, Run, UnreadableMarks, row_of, with_letter

PLACES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 9))
PARTITIONS = st.tuples(st.sampled_from(["cdc", "订单"]), st.integers(0, 3))
IDS = st.sampled_from("ABC")
MARKS = st.builds(
    Marks,
    st.dictionaries(
        PARTITIONS, st.dictionaries(st.integers(WHOLE, 63), PLACES, min_size=1, max_size=5), max_size=4
    ),
    st.dictionaries(PARTITIONS, st.builds(TopicId, IDS, st.lists(IDS, max_size=2).map(tuple)), max_size=4),
)


def test_what_is_at_or_before_the_mark_is_applied() -> None:
    marks = Marks().advanced([change(5, index=1)], None)
    batch = [change(5, index=0), change(5, index=1), change(5, index=2), change(6)]
    assert marks.beyond(batch, None) == (batch[2:], [2, 3])


def test_without_marks_all_is_beyond() -> None:
    batch = [change(5), change(6)]
    assert Marks().beyond(batch, None) == (batch, range(2))
    assert Marks().beyond([], None) == ([], range(0))


def test_partitions_have_marks_of_their_own() -> None:
    marks = Marks().advanced([change(9, partition=0), change(3, partition=1)], None)
    batch = [change(9, partition=0), change(4, partition=1), change(10, partition=0), change(1, partition=2)]
    assert marks.beyond(batch, None) == (batch[1:], [1, 2, 3])
    assert marks.highest() == {("cdc", 0): (9, 0), ("cdc", 1): (3, 0)}


def test_a_mark_never_goes_back() -> None:
    marks = Marks().advanced([change(9)], None)
    assert marks.advanced([change(4)], None) is marks


def test_shards_advance_each_for_itself() -> None:
    marks = Marks().advanced([change(7)], 3)
    assert marks.beyond([change(7)], 3) == ([], [])
    assert marks.beyond([change(7)], 4) == ([change(7)], range(1))


def test_a_batch_of_the_whole_table_covers_its_shards() -> None:
    marks = Marks().advanced([change(7)], 3).advanced([change(12)], 4)
    whole = marks.advanced([change(10, ddl=True)], None)
    assert whole.known == {("cdc", 0): {WHOLE: (10, 0), 4: (12, 0)}}
    assert whole.beyond([change(9)], 3) == ([], [])


def test_after_a_change_of_order_each_change_is_looked_up_by_its_shard() -> None:
    one, other = change(7, row=1), change(8, row=2)
    assert shard_of(one) != shard_of(other)
    marks = Marks().advanced([change(9, row=1)], shard_of(one))
    batch = [one, other, change(9, row=1), change(10, row=1)]
    assert marks.beyond(batch, None) == ([batch[1], batch[3]], [1, 3])


def test_ddl_has_no_shard_to_be_looked_up_by() -> None:
    marks = Marks().advanced([change(9)], 3)
    assert marks.beyond([change(8, ddl=True)], None) == ([change(8, ddl=True)], [0])


@given(MARKS)
def test_marks_are_read_as_they_were_written(marks: Marks) -> None:
    assert Marks.from_json(marks.to_json()) == marks
    assert hash(Marks.from_json(marks.to_json().encode())) == hash(marks)


# ---- a topic made anew


def test_marks_of_a_former_topic_cover_nothing_of_the_new_one() -> None:
    first, _ = Marks().followed([change(9)], {"cdc": "A"}, KnownIds())
    first = (
        first.advanced([change(9)], None).advanced([change(9, partition=1)], None).advanced([change(12)], 3)
    )
    batch = [change(0), change(1)]
    assert first.beyond(batch, None) == ([], [])
    seen, anew = first.followed(batch, {"cdc": "B"}, KnownIds())
    assert anew == [("cdc", 0, "A", "B")]
    assert seen.beyond(batch, None) == (batch, range(2))
    marks = seen.advanced(batch, None)
    assert marks.known == {("cdc", 0): {WHOLE: (1, 0)}, ("cdc", 1): {WHOLE: (9, 0)}}
    assert marks.ids == {("cdc", 0): TopicId("B", ("A",))}
    assert marks.followed(batch, {"cdc": "B"}, KnownIds()) == (marks, ())
    assert Marks.from_json(marks.to_json()) == marks


def test_changes_of_a_former_topic_are_refused_once_the_new_one_has_come() -> None:
    marks, _ = Marks(ids={("cdc", 0): TopicId("A")}).followed([change(0)], {"cdc": "B"}, KnownIds())
    with pytest.raises(FormerTopic, match=r"former topic cdc \(id A\).*replaced it \(id B\)"):
        marks.followed([change(5)], {"cdc": "A"}, KnownIds())
    again, _ = marks.followed([change(0)], {"cdc": "C"}, KnownIds())
    for former in ("A", "B"):
        with pytest.raises(FormerTopic):
            again.followed([change(5)], {"cdc": former}, KnownIds())


def test_a_table_whose_first_mark_is_of_the_new_topic_refuses_the_former_one() -> None:
    known_ids = KnownIds()
    Marks().followed([change(9)], {"cdc": "A"}, known_ids)  # of another table
    marks, _ = Marks().followed([change(0)], {"cdc": "B"}, known_ids)
    assert marks.ids == {("cdc", 0): TopicId("B", ("A",))}
    with pytest.raises(FormerTopic):
        marks.followed([change(500)], {"cdc": "A"}, KnownIds())  # by a process that was frozen


def test_what_a_log_tells_of_topics_is_known_to_the_tables_beside_it() -> None:
    known_ids = KnownIds()
    Marks(ids={("cdc", 1): TopicId("B", ("A",))}).teach(known_ids)
    left, _ = Marks().followed([change(500)], {"cdc": "A"}, known_ids)  # of a worker's own queue
    assert left.ids == {("cdc", 0): TopicId("A")}
    assert left.followed([change(0)], {"cdc": "B"}, known_ids)[0].ids == {("cdc", 0): TopicId("B", ("A",))}


def test_marks_without_an_id_hold_and_take_the_first_one() -> None:
    marks, anew = (
        Marks().advanced([change(9)], None).followed([change(3), change(10)], {"cdc": "A"}, KnownIds())
    )
    assert not anew
    assert marks.ids == {("cdc", 0): TopicId("A")}
    assert marks.beyond([change(3), change(10)], None) == ([change(10)], [1])
    assert marks.followed([change(3)], {}, KnownIds()) == (marks, ())


def test_a_change_has_a_name_that_no_change_of_a_former_topic_had() -> None:
    """Of the other table's statements, too, which may be the only ones of the former topic."""
    assert Marks().names(change(0)) == ("cdc",)
    marks, _ = Marks().followed([change(0)], {"cdc": "A"}, KnownIds())
    assert marks.names(change(0)) == ("cdc@A", "cdc")  # as a release without ids has noted it
    marks, _ = marks.followed([change(0)], {"cdc": "B"}, KnownIds())
    assert marks.names(change(0)) == ("cdc@B",)


def test_a_letter_has_a_name_that_no_letter_of_a_former_topic_had() -> None:
    marks, _ = Marks().followed([letter(5)], {"dead@5": "A"}, KnownIds())
    assert marks.names(letter(5)) == ("dead@5@A", "dead@5")
    marks, _ = marks.followed([letter(5)], {"dead@5": "B"}, KnownIds())
    assert marks.names(letter(5)) == ("dead@5@B",)


# ---- replayed letters


def letter(offset: int, *, index: int = 0) -> Change:
    return msgspec.structs.replace(change(offset, index=index), topic=f"dead@{offset}")


def test_replayed_letters_are_known_each_by_itself_whatever_their_order() -> None:
    marks = Marks()
    for offset in (7, 3, 5, 4, 8, 100):
        assert marks.beyond([letter(offset)], None)[0] == [letter(offset)]
        marks = marks.advanced([letter(offset)], None)
        assert marks.beyond([letter(offset)], None) == ([], [])
    assert marks.letters == {("dead@", 0): (Run(3, 5, 0), Run(7, 8, 0), Run(100, 100, 0))}
    assert marks.beyond([letter(6)], None)[0] == [letter(6)]
    assert marks.known == {}
    assert marks.highest() == {}
    assert Marks.from_json(marks.to_json()) == marks


def test_of_a_letter_that_was_applied_in_part_the_rest_is_applied() -> None:
    rows = [letter(5, index=index) for index in range(3)]
    marks = Marks().advanced([letter(4)], None).advanced(rows[:2], None).advanced([letter(6)], None)
    assert marks.beyond(rows, None) == ([rows[2]], [2])
    marks = marks.advanced(rows[2:], None)
    assert marks.beyond(rows, None) == ([], [])
    assert marks.letters == {("dead@", 0): (Run(4, 4, 0), Run(5, 5, 2), Run(6, 6, 0))}


def test_marks_do_not_grow_with_each_replayed_letter() -> None:
    marks = Marks()
    for offset in range(500):
        marks = marks.advanced([letter(offset)], None)
    assert len(marks.to_json()) < 80
    for offset in range(1_000, 5_000, 2):
        marks = marks.advanced([letter(offset)], None)
    assert len(marks.letters["dead@", 0]) == 1_000
    assert len(marks.to_json()) < 16_000
    assert marks.beyond([letter(4_998)], None) == ([], [])


def test_letters_that_an_earlier_release_kept_as_topics_are_folded() -> None:
    old = '{"v":1,"marks":{"dead@5":{"0":{"-1":[5,0]}},"dead@6":{"0":{"-1":[6,0]}},"cdc":{"0":{"-1":[9,0]}}}}'
    marks = Marks.from_json(old)
    assert marks.known == {("cdc", 0): {WHOLE: (9, 0)}}
    assert marks.letters == {("dead@", 0): (Run(5, 6, 0),)}


def test_letters_of_a_dead_letter_topic_made_anew_are_others() -> None:
    marks, _ = Marks().followed([letter(5)], {"dead@5": "A"}, KnownIds())
    marks = marks.advanced([letter(5)], None)
    seen, anew = marks.followed([letter(5)], {"dead@5": "B"}, KnownIds())
    assert anew == [("dead@", 0, "A", "B")]
    assert seen.beyond([letter(5)], None)[0] == [letter(5)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60))
def test_runs_of_letters_say_of_each_what_was_told_last(told: list[tuple[int, int]]) -> None:
    letters: Letters = ()
    for offset, row in told:
        letters = with_letter(letters, offset, row)
    assert {each: row_of(letters, each) for each in range(31)} == {
        each: dict(told).get(each) for each in range(31)
    }
    assert all(
        run.last < after.first and (run.last + 1, run.row) != (after.first, after.row)
        for run, after in pairwise(letters)
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not marks: Input data was truncated"),
        ("[1]", r"not marks: Expected `object`, got `array`; found '\[1\]'"),
        ('{"marks":{}}', "marks of version null cannot be read"),
        ('{"v":2,"marks":{}}', "version 2 cannot be read: this binlane knows version 1"),
        ('{"v":1,"marks":{"cdc":{"0":{"-1":[5]}}}}', "not marks: Expected `array` of length 2"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, told: str) -> None:
    with pytest.raises(UnreadableMarks, match=told):
        Marks.from_json(text)
