"""The captured streams in Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from topics import Source, put

from worker.local.broker import Broker


@pytest.fixture(scope="session")
def sources(broker: Broker) -> Callable[..., Source]:
    """sources("canal", twice=False): the stream, put into Kafka when it is first asked for."""
    found: dict[tuple[str, bool], Source] = {}

    def get(stream: str, *, twice: bool = False) -> Source:
        if (stream, twice) not in found:
            found[stream, twice] = put(broker, stream, twice=twice)
        return found[stream, twice]

    return get
