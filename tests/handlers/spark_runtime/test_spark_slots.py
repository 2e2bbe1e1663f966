"""Who is asked first is let in first, however fast the others come again."""

from __future__ import annotations

import threading
import time

import pytest

from handlers.spark.runtime.session import Slots


def test_a_thread_that_comes_again_at_once_does_not_overtake_one_that_waits() -> None:
    slots = Slots(1)
    inside, ended = threading.Event(), threading.Event()
    turns = 0

    def busy() -> None:
        nonlocal turns
        while not ended.is_set():
            with slots:
                turns += 1
                inside.set()
                time.sleep(0.001)

    thread = threading.Thread(target=busy)
    thread.start()
    inside.wait()
    overtaken = 0
    for _ in range(50):
        before = turns
        with slots:
            overtaken = max(overtaken, turns - before)
    ended.set()
    thread.join()
    assert overtaken <= 1, "one more may have come in before we began to wait"


def test_merges_go_by_the_age_of_their_rows_and_nobody_else_waits_longer_for_their_sake() -> None:
    slots = Slots(1)
    order: list[str] = []

    def work(name: str, since: float | None) -> None:
        with slots if since is None else slots.merging(since):
            order.append(name)

    names = {"new": 30.0, "statement": None, "old": 10.0, "other statement": None, "middle": 20.0}
    threads = [threading.Thread(target=work, args=each) for each in names.items()]
    with slots:
        for waiting, thread in enumerate(threads, start=1):
            thread.start()
            while len(slots._waiting) < waiting:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == ["old", "statement", "middle", "other statement", "new"]


def test_so_many_are_inside_at_once_and_no_more() -> None:
    slots = Slots(3)
    lock = threading.Lock()
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(20):
            with slots:
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with lock:
                    inside -= 1
                    done += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (3, 160)


def test_an_error_inside_gives_the_slot_back() -> None:
    slots = Slots(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), slots:
            _ = 1 / 0
