"""What every test may ask for. The broker is a real Kafka, one for the whole session."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest

from worker.broker import Broker, BrokerError
from worker.jars import JarsError
from worker.java import JavaError

MakeTopic = Callable[..., str]


# A runner that was started in the background ignores SIGINT, and so would every process that the tests start;
# Ctrl-C is part of what is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running Kafka that all tests share: one that stops or disturbs it starts a Broker of its own."""
    node = Broker()
    try:
        node.start()
    except (BrokerError, JarsError, JavaError) as fault:
        node.close()
        if os.environ.get("CI") == "true":
            pytest.fail(f"the broker cannot start: {fault}", pytrace=False)
        pytest.skip(f"the broker cannot start: {fault}")
    yield node
    node.close()


_numbers = itertools.count(1)


@pytest.fixture
def make_topic(broker: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """`make_topic(partitions=1, **config)` makes a topic that no other test has, and returns its name."""

    def make(partitions: int = 1, **config: str) -> str:
        # Kafka's topic names: letters, digits, `.`, `_` and `-`, at most 249.
        test = re.sub(r"[^a-zA-Z0-9-]+", "-", request.node.name)[:150].strip("-")
        return broker.create_topic(f"{test}-{next(_numbers)}", partitions, **config)

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic of one partition."""
    return make_topic()
