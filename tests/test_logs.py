"""One way out for all logs."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest

from worker.observing import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_line_of_json_where_there_is_no_terminal() -> None:
    early = logs.get_logger("worker.fetching.fetcher")
    stream = io.StringIO()
    logs.configure(stream=stream)
    early.info("partitions_assigned", count=6, topic="ключ")
    (event,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event.pop("timestamp"))
    assert event == {
        "level": "info",
        "logger": "worker.fetching.fetcher",
        "event": "partitions_assigned",
        "count": 6,
        "topic": "ключ",
    }
    assert list(lines(stream)[0])[:4] == ["timestamp", "level", "logger", "event"]


def test_a_terminal_gets_coloured_and_aligned_lines() -> None:
    stream = Terminal()
    logs.configure(stream=stream)
    logs.get_logger("worker").info("one", table="shop.orders")
    logs.get_logger("worker").info("another_event", table="shop.orders")
    assert "\x1b[" in stream.getvalue()
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in stream.getvalue().splitlines()]
    assert len({line.index("table=shop.orders") for line in plain}) == 1


def test_the_format_can_be_forced() -> None:
    terminal, file = Terminal(), io.StringIO()
    logs.configure(format="json", stream=terminal)
    logs.get_logger("worker").info("one")
    assert lines(terminal)[0]["event"] == "one"
    logs.configure(format="console", stream=file)
    logs.get_logger("worker").info("two")
    assert "two" in file.getvalue()
    assert "\x1b[" not in file.getvalue()
    assert not file.getvalue().startswith("{")


def test_what_is_below_the_level_is_not_logged() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    logs.get_logger("worker").info("quiet")
    logging.getLogger("uvicorn").info("quiet")
    logs.get_logger("worker").warning("loud")
    assert [event["event"] for event in lines(stream)] == ["loud"]


def test_libraries_log_the_same_way() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    logging.getLogger("librdkafka").info("Started on port %d", 8080)
    logging.getLogger("py4j.clientserver").info("Received command")
    (event,) = lines(stream)
    assert (event["event"], event["logger"], event["level"]) == (
        "Started on port 8080",
        "librdkafka",
        "info",
    )


@pytest.mark.parametrize("format", ["json", "console"])
def test_an_exception_is_told_with_its_traceback(format: Any) -> None:
    stream = io.StringIO()
    logs.configure(format=format, stream=stream)
    try:
        json.loads("broken")
    except ValueError:
        logs.get_logger("worker").exception("failed")
    text = lines(stream)[0]["exception"] if format == "json" else stream.getvalue()
    assert "Traceback" in text
    assert "JSONDecodeError: Expecting value" in text


@pytest.mark.parametrize("format", ["json", "console"])
def test_no_secret_reaches_a_log(format: Any) -> None:
    stream = io.StringIO()
    logs.configure(format=format, stream=stream, redact=lambda text: text.replace("hunter2", "***"))
    logger = logs.get_logger("worker")
    try:
        int("hunter2")
    except ValueError as error:
        logger.exception("failed", error=error, settings={"sasl.password": "hunter2"}, tried=["hunter2"])
        logging.getLogger("uvicorn").exception("no %s", "hunter2")
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("***") >= 6


def test_configuring_again_replaces_what_was_set() -> None:
    first, second = io.StringIO(), io.StringIO()
    logger = logs.get_logger("worker")
    logs.configure(stream=first)
    logger.info("one")
    logs.configure(stream=second)
    logger.info("two")
    assert [event["event"] for event in lines(first)] == ["one"]
    assert [event["event"] for event in lines(second)] == ["two"]
