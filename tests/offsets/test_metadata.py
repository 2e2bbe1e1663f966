"""Finished-ahead ranges as the metadata of a commit."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offsets import metadata
from offsets.types import Checkpoint, OffsetRange

BASES = st.integers(0, 2**62)


def encode(ahead: Sequence[OffsetRange], base: int, limit: int = metadata.DEFAULT_LIMIT) -> str:
    return metadata.encode(Checkpoint(base, tuple(ahead)), limit=limit)


def decode(text: str, base: int) -> tuple[OffsetRange, ...] | None:
    """The ranges only."""
    found = metadata.decode(text, base)
    return None if found is None else found.ahead


def ranges_from(base: int, steps: list[tuple[int, int]]) -> tuple[OffsetRange, ...]:
    """Each step: how far after the range before it begins, and its length."""
    ranges = []
    for gap, length in steps:
        ranges.append(OffsetRange(base + gap, base + gap + length))
        base += gap + length
    return tuple(ranges)


NEAR = st.integers(1, 5)
FAR = st.integers(1, 2**40)
STEPS = st.lists(st.tuples(NEAR, NEAR), max_size=300) | st.lists(st.tuples(FAR, FAR), max_size=300)


def random_ranges(count: int, base: int, mean: float = 2.0) -> tuple[OffsetRange, ...]:
    draw = random.Random(count)
    return ranges_from(
        base,
        [(1 + int(draw.expovariate(1 / mean)), 1 + int(draw.expovariate(1 / mean))) for _ in range(count)],
    )


@given(BASES, STEPS)
def test_what_fits_comes_back_whole(base: int, steps: list[tuple[int, int]]) -> None:
    ahead = ranges_from(base, steps)
    assert decode(encode(ahead, base, limit=100_000), base) == ahead


@given(BASES, STEPS, st.integers(0, 400))
@example(0, [(1, 1)] * 300, 30)
def test_what_does_not_fit_keeps_the_lowest_ranges(
    base: int, steps: list[tuple[int, int]], limit: int
) -> None:
    ahead = ranges_from(base, steps)
    text = encode(ahead, base, limit)
    kept = decode(text, base)
    assert len(text) <= limit
    assert kept is not None
    assert ahead[: len(kept)] == kept


@pytest.mark.parametrize(("count", "mean"), [(6_000, 5.0), (50_000, 0.5), (5_000, 1e6)])
def test_the_room_is_used_to_within_a_hundredth(count: int, mean: float) -> None:
    ahead = random_ranges(count, 10**9, mean)
    text = encode(ahead, 10**9)
    assert 3_960 <= len(text) <= 4_000
    assert decode(text, 10**9) == ahead[: len(decode(text, 10**9) or ())]


def test_three_thousand_gaps_of_a_shuffled_finish_fit() -> None:
    """Twenty workers finish in random order: runs of one or two, gaps of one or two."""
    ahead = random_ranges(3_000, 5_000_000_000, mean=1.0)
    assert decode(encode(ahead, 5_000_000_000), 5_000_000_000) == ahead


def test_every_second_offset_of_a_long_way_fits() -> None:
    ahead = ranges_from(7, [(1, 1)] * 60_000)
    assert decode(encode(ahead, 7), 7) == ahead


@given(
    BASES,
    STEPS,
    st.none() | st.text(st.characters(codec="ascii"), min_size=1, max_size=40),
    st.none() | st.integers(0, 10**6),
)
def test_the_topics_id_and_what_the_group_began_with_come_back(
    base: int, steps: list[tuple[int, int]], topic_id: str | None, began_with: int | None
) -> None:
    saved = Checkpoint(base, ranges_from(base, steps), topic_id, began_with)
    assert metadata.decode(metadata.encode(saved, 2**32 - 1, limit=100_000), base) == saved


def test_no_two_stamps_give_the_same_text() -> None:
    saved = Checkpoint(5, (), "the-id")
    texts = {metadata.encode(saved, stamp) for stamp in range(100)}
    assert len(texts) == 100
    assert {metadata.decode(text, 5) for text in texts} == {saved}


def test_where_not_even_the_topics_id_fits_there_is_no_text() -> None:
    saved = Checkpoint(5, (OffsetRange(7, 8),), "p4gZb3vQQPq1dWSk3CLR2A")
    assert metadata.encode(saved, limit=50) == ""
    assert metadata.decode("", 5) == Checkpoint(5)
    assert metadata.decode(metadata.encode(saved, limit=80), 5) == saved


def test_the_text_is_plain_ascii_on_one_line() -> None:
    text = encode(random_ranges(500, 0), 0)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text


@given(BASES, STEPS.filter(bool), st.data())
def test_a_changed_bit_is_noticed(base: int, steps: list[tuple[int, int]], data: st.DataObject) -> None:
    text = encode(ranges_from(base, steps), base).encode("ascii")
    place = data.draw(st.integers(0, len(text) - 1))
    changed = bytearray(text)
    changed[place] ^= 1 << data.draw(st.integers(0, 6))
    assert decode(changed.decode("ascii"), base) is None


@given(BASES, STEPS.filter(bool), st.data())
def test_a_cut_text_is_noticed(base: int, steps: list[tuple[int, int]], data: st.DataObject) -> None:
    text = encode(ranges_from(base, steps), base)
    assert decode(text[: data.draw(st.integers(1, len(text) - 1))], base) is None


@given(BASES, STEPS.filter(bool), st.text(min_size=1, max_size=20))
def test_a_longer_text_is_noticed(base: int, steps: list[tuple[int, int]], more: str) -> None:
    text = encode(ranges_from(base, steps), base)
    assert decode(text + more, base) is None
    assert decode(more + text, base) is None


@given(BASES, STEPS.filter(bool), BASES)
@example(0, [(1, 1)], 1)
def test_the_text_of_another_base_offset_is_refused(
    base: int, steps: list[tuple[int, int]], other: int
) -> None:
    text = encode(ranges_from(base, steps), base)
    assert (decode(text, other) is None) == (other != base)


@given(st.text(min_size=1) | st.from_regex(r"binlane[12]:[1-9]:[0-9a-f]{8}:[!-~]{1,12}", fullmatch=True))
@example("NO_METADATA")
@example("leader-epoch=3")
@example("binlane3:5:00000000:aaaaaa")
def test_a_foreign_text_is_refused(text: str) -> None:
    assert decode(text, 0) is None


@pytest.mark.parametrize(
    "ahead",
    [
        [OffsetRange(10, 12)],
        [OffsetRange(12, 12)],
        [OffsetRange(12, 14), OffsetRange(14, 15)],
        [OffsetRange(15, 16), OffsetRange(12, 13)],
    ],
    ids=["touches the base", "empty", "touch each other", "descend"],
)
def test_ranges_that_no_checkpoint_may_hold_are_refused(ahead: list[OffsetRange]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        encode(ahead, 10)


def test_leaving_out_most_of_a_hundred_thousand_ranges_takes_no_time_worth_naming() -> None:
    ahead = random_ranges(100_000, 0, mean=1.0)
    begun = time.process_time()
    encode(ahead, 0)
    assert time.process_time() - begun < 0.2
