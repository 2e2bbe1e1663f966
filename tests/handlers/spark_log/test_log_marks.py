"""Marks tell which changes of a batch are applied already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_lab import change

from handlers.marks import WHOLE
from handlers.sharding import shard_of
from handlers.spark.log.marks import Marks, UnreadableMarks

PLACES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 9))
MARKS = st.builds(
    Marks,
    st.dictionaries(
        st.tuples(st.sampled_from(["cdc", "订单"]), st.integers(0, 3)),
        st.dictionaries(st.integers(WHOLE, 63), PLACES, min_size=1, max_size=5),
        max_size=4,
    ),
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


@given(MARKS, MARKS, st.integers(0, 63), PLACES)
def test_of_two_marks_together_is_applied_what_either_has(
    mine: Marks, theirs: Marks, shard: int, place: tuple[int, int]
) -> None:
    one = [change(place[0], index=place[1])]
    applied = [not marks.beyond(one, shard)[0] for marks in (mine, theirs, mine | theirs)]
    assert applied[2] == (applied[0] or applied[1])
    assert mine | theirs == theirs | mine
    assert mine | mine == mine


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no marks: Input data was truncated"),
        ("[1]", r"no marks: Expected `object`, got `array`; found '\[1\]'"),
        ('{"marks":{}}', "marks of version null cannot be read"),
        ('{"v":2,"marks":{}}', "version 2 cannot be read: this binlane knows version 1"),
        ('{"v":1,"marks":{"cdc":{"0":{"-1":[5]}}}}', "no marks: Expected `array` of length 2"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, told: str) -> None:
    with pytest.raises(UnreadableMarks, match=told):
        Marks.from_json(text)
