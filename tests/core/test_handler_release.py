"""Handlers that work behind their batches are told which partitions leave, before others have them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
import structlog
from building import Clock, configuration

from handlers import Handler, HandlerContext
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.assignment import Assignment
from worker.broker_settings import free_port
from worker.formats.registry import get
from worker.handler_status import OpenHandler
from worker.parts import Parts


class Behind(Handler):
    """Works for partitions until it is told that they leave."""

    def __init__(self, *, raises: bool = False, ends: bool = True) -> None:
        self.raises = raises
        self.goes_on = threading.Event()
        if ends:
            self.goes_on.set()
        self.left: list[tuple[str, int]] = []
        self.still: list[tuple[str, int]] = []
        self.context: HandlerContext | None = None

    def open(self, context: HandlerContext) -> None:
        self.context = context

    def release(self, partitions: Any) -> None:
        assert self.context is not None
        assert self.context.partitions is not None
        self.left += partitions
        self.still += self.context.partitions()
        if self.raises:
            raise RuntimeError("no release")
        self.goes_on.wait()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    settings = configuration(
        kafka={"bootstrap_servers": f"127.0.0.1:{free_port()}", "group_id": "g", "topics": ["cdc"]},
        checkpoint={"directory": str(tmp_path)},
        revoke_timeout="300ms",
    )
    made = Parts(settings, clock=Clock(), fail=lambda error: None, stop=threading.Event())
    made.assignments.add(
        [
            Assignment(
                TopicPartition("cdc", number),
                made.assignments.next_epoch(),
                Start(0, (), "kafka", ""),
                get("canal"),
            )
            for number in (0, 1)
        ]
    )
    return made


def opened(parts: Parts, *handlers: Handler) -> None:
    for handler in handlers:
        handler.open(
            HandlerContext(worker="w", handler="behind", folder=Path(), partitions=parts.handlers._partitions)
        )
        parts.handlers._opened.append(OpenHandler("behind", "behind", None, handler))


def leaves(parts: Parts, *, lost: bool = False) -> float:
    """Partition 1 does; how long that takes."""
    callback = parts.rebalancer.on_lost if lost else parts.rebalancer.on_revoke
    began = time.monotonic()
    callback(cast(confluent_kafka.Consumer, None), [confluent_kafka.TopicPartition("cdc", 1)])
    return time.monotonic() - began


@pytest.mark.parametrize("lost", [False, True])
def test_a_handler_is_told_which_partitions_leave_and_knows_which_stay(parts: Parts, lost: bool) -> None:
    handler = Behind()
    opened(parts, Handler(), handler)
    leaves(parts, lost=lost)
    while not handler.still:
        time.sleep(0.01)
    assert handler.left == [("cdc", 1)]
    assert handler.still == [("cdc", 0)]


def test_a_handler_that_does_not_let_go_holds_the_rebalance_no_longer_than_its_timeout(parts: Parts) -> None:
    slow, other = Behind(ends=False), Behind()
    opened(parts, slow, other)
    assert 0.2 < leaves(parts) < 3
    assert other.left == slow.left == [("cdc", 1)]
    slow.goes_on.set()


def test_partitions_that_are_lost_already_wait_for_nobody(parts: Parts) -> None:
    slow = Behind(ends=False)
    opened(parts, slow)
    assert leaves(parts, lost=True) < 0.25
    slow.goes_on.set()


def test_an_error_of_a_handler_does_not_escape_the_rebalance(parts: Parts) -> None:
    opened(parts, Behind(raises=True))
    with structlog.testing.capture_logs() as logs:
        leaves(parts)
        for thread in threading.enumerate():
            if thread.name == "release-behind":
                thread.join()
    assert [each["event"] for each in logs if "no release" in str(each)] == ["handler_release_failed"]
