"""The judges of a storm see what they are there for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from storm.judge import Judge
from storm.parts.sampling import Sample, growth
from storm.plan import KINDS, schedule

Write = Callable[..., None]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path / "marks.jsonl")


@pytest.fixture
def write(judge: Judge) -> Write:
    """write("b", worker, batch), write("e", worker, batch, first, count): a mark of the table shop.t."""
    times = iter(range(1000))

    def mark(kind: str, worker: str, batch: int = 0, first: int = 0, count: int = 1) -> None:
        line = [kind, next(times), worker]
        line += {"b": ["shop.t", batch], "x": ["shop.t", batch]}.get(kind, [])
        line += ["shop.t", batch, "storm", 0, [[first, count]], 0] if kind == "e" else []
        with judge.file.open("a") as out:
            out.write(json.dumps(line) + "\n")

    return mark


def broken(judge: Judge) -> list[str]:
    judge.look()
    return [each.what for each in judge.incidents]


def test_records_in_order_and_a_suffix_that_comes_again_are_as_promised(judge: Judge, write: Write) -> None:
    for batch, (first, count) in enumerate([(0, 5), (5, 5), (3, 4), (7, 6)]):
        write("b", "a:1", batch)
        write("e", "a:1", batch, first, count)
    assert broken(judge) == []
    assert (judge.finished, judge.head("shop.t"), sum(judge.repeated.values())) == (13, 13, 7)
    assert judge.unfinished("shop.t", 13) == 0


def test_a_record_that_never_comes_is_lost_and_what_follows_out_of_order(judge: Judge, write: Write) -> None:
    write("b", "a:1")
    write("e", "a:1", first=0, count=5)
    write("b", "a:1", 1)
    write("e", "a:1", 1, first=6, count=4)
    assert broken(judge) == ["out of order"]
    assert (judge.head("shop.t"), judge.unfinished("shop.t", 11)) == (5, 2)


def test_a_jump_over_records_that_were_finished_before_is_out_of_order(judge: Judge, write: Write) -> None:
    for batch, (first, count) in enumerate([(0, 10), (3, 1), (10, 1)]):
        write("b", "a:1", batch)
        write("e", "a:1", batch, first, count)
    assert broken(judge) == ["out of order"]


def test_two_batches_at_once_overlap_unless_the_first_has_failed_or_its_process_is_gone(
    judge: Judge, write: Write
) -> None:
    write("b", "a:1")
    write("x", "a:1")
    write("b", "a:1", 1)
    judge.look()
    judge.note_end_of("a:1")
    write("b", "b:2")
    assert broken(judge) == []
    write("b", "c:3")
    assert broken(judge) == ["overlapping"]


def test_what_a_child_process_had_open_ends_with_it_or_with_its_worker(judge: Judge, write: Write) -> None:
    write("b", "a:1/7")
    judge.look()
    judge.note_end_of("a:1/7")
    write("b", "a:1/8")
    judge.look()
    judge.note_end_of("a:1")
    write("b", "a:2/9")
    assert broken(judge) == []
    judge.note_end_of("a:2/99")
    write("b", "a:2/10")
    assert broken(judge) == ["overlapping"]


def test_what_a_frozen_process_had_begun_is_excused_and_nothing_after_it(judge: Judge, write: Write) -> None:
    write("b", "a:1")
    write("e", "a:1", first=0, count=5)
    write("b", "a:1", 1)
    judge.frozen("a:1")
    write("b", "b:2")
    write("e", "b:2", first=5, count=5)
    write("e", "a:1", 1, first=5, count=2)
    write("b", "b:2", 1)
    write("e", "b:2", 1, first=10)
    assert broken(judge) == []
    write("b", "a:1", 2)
    write("b", "b:2", 2)
    assert broken(judge) == ["overlapping"]


@pytest.mark.parametrize(("seconds", "begun", "expected"), [(0.02, 1, 0), (0.02, 2, 1), (0.2, 1, 1)])
def test_one_batch_may_have_begun_before_the_freeze_and_be_marked_after_it(
    judge: Judge, write: Write, seconds: float, begun: int, expected: int
) -> None:
    judge.frozen("a:1")
    write("b", "b:2")
    judge.look()
    judge.wakes("a:1")
    woken = json.loads(judge.file.read_text().splitlines()[-1])[1]
    with judge.file.open("a") as out:
        for batch in range(begun):
            out.write(json.dumps(["b", woken + seconds, "a:1", "shop.t", batch]) + "\n")
    assert broken(judge) == ["overlapping"] * expected


def test_a_seed_gives_the_schedule() -> None:
    kinds = dict.fromkeys(KINDS, 2)
    assert schedule(5, kinds, 60) == schedule(5, kinds, 60) != schedule(6, kinds, 60)


def test_what_grows_is_told_and_what_does_not_is_not() -> None:
    def samples(rss: Callable[[int], float]) -> list[Sample]:
        return [
            Sample(5.0 * at, "w1", int(rss(at) * (1 << 20)), 30, 80, 1 << 20, 0.1, 0.2, 5)
            for at in range(720)
        ]

    assert growth(samples(lambda at: 120 + at % 7), "w1") == []
    assert growth(samples(lambda at: 60 + min(at, 60)), "w1") == [], "until it is warm"
    (told,) = growth(samples(lambda at: 120 + at / 6), "w1")
    assert told.startswith("w1: rss has grown")
