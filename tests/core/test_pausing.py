"""What comes with an assignment is fetched or not as the worker wants it, whatever librdkafka remembers.

On librdkafka itself and its mock broker, as the rebalance callbacks of both kinds of protocol do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from members import RECORDS, Member

both: Any = pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])


@both
def test_what_left_while_everything_was_paused_is_fetched_when_it_comes_back(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    it.come(0)
    assert it.read({0: RECORDS}) == {0: RECORDS}
    it.pauses.pause()  # the lanes are full
    it.leave(0)
    it.pauses.resume()  # what they held of it is forgotten
    it.come(0, offset=5)
    assert it.read({0: RECORDS - 5}) == {0: RECORDS - 5}


def test_what_another_member_had_meanwhile_is_fetched_when_it_comes_back(
    member: Callable[[str], Member],
) -> None:
    it = member("cooperative-sticky")
    it.come(0, 1)
    assert it.read({0: RECORDS, 1: RECORDS}) == {0: RECORDS, 1: RECORDS}
    it.pauses.pause()
    it.leave(1)
    it.pauses.resume()
    it.come(1, offset=5)
    assert it.read({1: RECORDS - 5}) == {1: RECORDS - 5}


@both
def test_what_comes_while_everything_is_paused_is_fetched_only_afterwards(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    it.come(2)
    it.read({2: RECORDS})
    it.leave(2)
    it.pauses.pause()
    it.come(2)
    assert it.reads_nothing()
    it.pauses.resume()
    assert it.read({2: RECORDS}) == {2: RECORDS}


@both
def test_what_left_while_it_was_ahead_of_others_is_fetched_when_it_comes_back(
    member: Callable[[str], Member], strategy: str
) -> None:
    it = member(strategy)
    ahead, _ = it.come(0, 3)
    assert it.read({0: RECORDS, 3: RECORDS}) == {0: RECORDS, 3: RECORDS}
    it.pauses.single("ddl_topics", [ahead])
    it.leave(0, 3)
    it.come(0, 3)
    it.pauses.single("ddl_topics", [])  # nothing is held of the new assignment
    assert it.read({0: RECORDS, 3: RECORDS}) == {0: RECORDS, 3: RECORDS}


def test_one_that_is_ahead_stays_paused_when_the_lanes_have_room_again(
    member: Callable[[str], Member],
) -> None:
    it = member("cooperative-sticky")
    it.come(0, 3)
    it.read({0: RECORDS, 3: RECORDS})
    it.leave(0, 3)
    it.pauses.pause()
    ahead, other = it.come(0, 3)
    it.pauses.single("ddl_topics", [ahead])
    it.pauses.resume()
    assert it.read({3: RECORDS}) == {3: RECORDS}
    assert it.reads_nothing()
    assert [it.pauses.is_paused(each) for each in (ahead, other)] == [True, False], "each partition's own"
    it.pauses.single("ddl_topics", [])
    assert it.read({0: RECORDS}) == {0: RECORDS}
