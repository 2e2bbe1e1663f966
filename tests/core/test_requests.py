"""What other threads ask of the fetcher's: done once, or, when nobody waits for it any more, never."""

from __future__ import annotations

import threading

import pytest

from worker.fetching.fetcher import Requests


def test_what_nobody_waits_for_any_more_is_never_done() -> None:
    requests, done = Requests(), threading.Event()
    assert not requests.ask(done.set, give_up=lambda: True)
    requests.between_polls(0.0)
    assert not done.is_set()


def test_what_is_begun_is_waited_for_to_its_end() -> None:
    requests, begun, goes_on, stops = Requests(), threading.Event(), threading.Event(), threading.Event()

    def do() -> None:
        begun.set()
        assert goes_on.wait(60)

    def give_up() -> bool:
        stops.set()
        return begun.is_set()

    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(requests.ask(do, give_up=give_up)))
    asking.start()
    serving = threading.Thread(target=lambda: [requests.between_polls(0.0) for _ in iter(begun.is_set, True)])
    serving.start()
    assert begun.wait(60)
    stops.clear()
    assert stops.wait(60), "it would give up now"
    goes_on.set()
    asking.join(60)
    serving.join(60)
    assert answers == [True]


def test_what_it_raises_is_raised_where_it_was_asked_for() -> None:
    requests, over = Requests(), threading.Event()

    def serve() -> None:
        while not over.is_set():
            requests.between_polls(0.0)

    serving = threading.Thread(target=serve)
    serving.start()
    with pytest.raises(ZeroDivisionError):
        requests.ask(lambda: print(1 / 0), give_up=lambda: False)
    over.set()
    serving.join(60)
