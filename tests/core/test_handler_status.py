"""What handlers tell of themselves and the worker, through the worker's own parts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from handlers import Handler
from worker.configuration.secrets import Secrets
from worker.running.open_handlers import OpenHandler, statuses


class Telling(Handler):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def status(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def told(*answers: Any, lane: int | None = None) -> list[dict[str, Any]]:
    opened = [OpenHandler("spark", "own:Spark", lane, Telling(answer)) for answer in answers]
    return statuses(opened, Secrets(["hunter2"]).redact)


def test_a_status_stands_beside_the_handlers_name_and_type_which_it_cannot_change() -> None:
    assert told({"tables": [], "type": "mine"}) == [{"handler": "spark", "type": "own:Spark", "tables": []}]
    assert told({"a": 1}, lane=3) == [{"handler": "spark", "type": "own:Spark", "lane": 3, "a": 1}]


def test_a_handler_that_has_nothing_to_tell_is_not_listed() -> None:
    assert told(None) == []
    assert statuses([OpenHandler("log", "log", None, Handler())], str) == []


def test_no_secret_is_shown_however_deep_it_lies() -> None:
    [found] = told({"spark": {"ui": "http://a:hunter2@b"}, "hunter2": [{"x": ("hunter2", 1, None, True)}]})
    assert "hunter2" not in str(found)
    assert found["***"] == [{"x": ["***", 1, None, True]}]


def test_what_json_cannot_hold_is_shown_as_text() -> None:
    [found] = told({"folder": Path("/lake")})
    assert found["folder"] == "/lake"


def test_a_status_that_raises_is_told_and_hides_no_other() -> None:
    first, second = told(ValueError("no hunter2"), {"a": 1})
    assert first["error"] == "its status raised ValueError: no ***"
    assert second["a"] == 1


def test_a_status_that_hangs_is_asked_once_and_shows_what_it_told_last() -> None:
    class Hanging(Telling):
        calls = 0

        def status(self) -> Any:
            self.calls += 1
            if self.calls > 1:
                goes_on.wait()
            return super().status()

    goes_on = threading.Event()
    hanging = Hanging({"tables": [1]})
    opened = [
        OpenHandler("slow", "own:Slow", None, hanging),
        OpenHandler("quick", "own:Quick", None, Telling({"a": 1})),
    ]
    assert statuses(opened, str)[0] == {"handler": "slow", "type": "own:Slow", "tables": [1]}
    for _ in range(3):
        slow, quick = statuses(opened, str)
        assert slow["tables"] == [1]
        assert slow["error"].startswith("its status has not answered for ")
        assert quick["a"] == 1
    assert hanging.calls == 2
    goes_on.set()
    while "error" in statuses(opened, str)[0]:
        pass


def test_a_status_that_ends_the_thread_it_is_asked_in_is_told() -> None:
    class Leaving(Handler):
        def status(self) -> Any:
            raise SystemExit(3)

    [found] = statuses([OpenHandler("own", "own:Leaving", None, Leaving())], str)
    assert found["error"] == "its status raised SystemExit: 3"
