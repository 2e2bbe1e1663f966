"""Which topic follows which, by their ids, in the marks of one handler."""

from __future__ import annotations

import pytest

from handlers.progress import FormerTopic, KnownIds, TopicId, followed

PLACE = ("cdc", 0)


def test_an_id_that_no_mark_has_is_of_a_topic_that_follows_all_there_were() -> None:
    known_ids = KnownIds()
    met = [known_ids.followed([], PLACE, topic_id) for topic_id in "ABBCA"]
    assert met == [
        TopicId("A"), TopicId("B", ("A",)), TopicId("B", ("A",)), TopicId("C", ("A", "B")), TopicId("A"),
    ]  # fmt: skip
    assert known_ids.followed([], ("other", 0), "C") == TopicId("C")


def test_marks_are_asked_once_for_each_id_that_is_met() -> None:
    asked: list[str] = []

    def read() -> list[TopicId]:
        asked.append("read")
        return [TopicId("A"), TopicId("B", ("A",)), TopicId()]

    known_ids = KnownIds()
    for _ in range(3):
        assert known_ids.followed([], PLACE, "A", read) == TopicId("A")
        assert known_ids.followed([], PLACE, "B", read) == TopicId("B", ("A",))
        assert known_ids.followed([], PLACE, None, read) == TopicId()
    assert asked == ["read"]


def test_an_id_that_is_not_known_moves_nothing_between_the_current_and_the_former() -> None:
    marks = [TopicId("A"), TopicId("B", ("A",))]
    assert followed(marks, PLACE, None) == TopicId("B", ("A",))
    unordered = followed([TopicId("A"), TopicId("B"), TopicId()], PLACE, None)
    assert unordered == TopicId()
    # None of their marks covers a change then that may be of the other.
    assert [unordered.covers(each) for each in (TopicId("A"), TopicId("B"), TopicId())] == [
        False,
        False,
        True,
    ]


def test_a_topic_that_is_live_again_is_taken_where_the_handler_is_told_so_and_the_other_is_former() -> None:
    away = TopicId("B", ("A",))
    with pytest.raises(FormerTopic, match=r'options: topic_again: \{"A": \["B"\]\}$'):
        KnownIds().followed([away], PLACE, "A")
    known_ids = KnownIds({"A": ["B"]})
    back = known_ids.followed([away], PLACE, "A")
    assert back == TopicId("A", ("B",))
    assert known_ids.followed([away, back], PLACE, "A") == back  # the whole table's mark, and a shard's
    with pytest.raises(FormerTopic):
        known_ids.followed([back], PLACE, "B")


def test_what_is_told_of_one_fail_over_does_not_let_a_topic_come_after_a_later_one() -> None:
    known_ids = KnownIds({"A": ["B"]})
    back = known_ids.followed([TopicId("B", ("A",))], PLACE, "A")
    later = known_ids.followed([back], PLACE, "C")
    assert later == TopicId("C", ("B", "A"))
    with pytest.raises(FormerTopic, match=r'topic_again: \{"A": \["C"\]\}$'):
        known_ids.followed([later], PLACE, "A")
