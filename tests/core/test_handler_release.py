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
from integration.process import eventually

from handlers import Handler, HandlerContext
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.registry import get
from worker.local.broker_settings import free_port
from worker.running.components import Components
from worker.running.open_handlers import OpenHandler
from worker.units.assigned_partition import Assignment


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
def components(tmp_path: Path) -> Components:
    settings = configuration(
        kafka={"bootstrap_servers": f"127.0.0.1:{free_port()}", "group_id": "g", "topics": ["cdc"]},
        checkpoint={"directory": str(tmp_path)},
        revoke_timeout="300ms",
    )
    made = Components(settings, clock=Clock(), fail=lambda error: None, stop=threading.Event())
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


def opened(components: Components, *handlers: Handler) -> None:
    for handler in handlers:
        handler.open(
            HandlerContext(
                worker="w", handler="behind", folder=Path(), partitions=components.handlers.partitions
            )
        )
        components.handlers._opened.append(OpenHandler("behind", "behind", None, handler))


def leaves(components: Components, *, lost: bool = False) -> float:
    """Partition 1 does; how long that takes."""
    callback = components.rebalancer.on_lost if lost else components.rebalancer.on_revoke
    began = time.monotonic()
    callback(cast(confluent_kafka.Consumer, None), [confluent_kafka.TopicPartition("cdc", 1)])
    return time.monotonic() - began


@pytest.mark.parametrize("lost", [False, True])
def test_a_handler_is_told_which_partitions_leave_and_knows_which_stay(
    components: Components, lost: bool
) -> None:
    handler = Behind()
    opened(components, Handler(), handler)
    leaves(components, lost=lost)
    while not handler.still:
        time.sleep(0.01)
    assert handler.left == [("cdc", 1)]
    assert handler.still == [("cdc", 0)]


def test_a_handler_that_does_not_let_go_holds_the_rebalance_no_longer_than_its_timeout(
    components: Components,
) -> None:
    slow, other = Behind(ends=False), Behind()
    opened(components, slow, other)
    assert leaves(components) > 0.2, "and it goes on"
    eventually(lambda: other.left == slow.left == [("cdc", 1)])
    slow.goes_on.set()


def test_partitions_that_are_lost_already_wait_for_nobody(components: Components) -> None:
    components.starts.adopt(components.starts.configuration.model_copy(update={"revoke_timeout": 3_600.0}))
    slow = Behind(ends=False)
    opened(components, slow)
    leaves(components, lost=True)
    assert not slow.goes_on.is_set(), "it returned before that"
    slow.goes_on.set()


def test_an_error_of_a_handler_does_not_escape_the_rebalance(components: Components) -> None:
    opened(components, Behind(raises=True))
    with structlog.testing.capture_logs() as logs:
        leaves(components)
        for thread in threading.enumerate():
            if thread.name == "release-behind":
                thread.join()
    assert [each["event"] for each in logs if "no release" in str(each)] == ["handler_release_failed"]
