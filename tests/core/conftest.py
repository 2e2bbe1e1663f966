from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from members import RECORDS, Member
from mock_brokers import mock_brokers


@pytest.fixture(scope="session")
def mock_servers() -> Iterator[str]:
    """Mock brokers with a topic `t`."""
    with mock_brokers(RECORDS) as address:
        yield address


@pytest.fixture
def member(mock_servers: str) -> Iterator[Callable[[str], Member]]:
    made: list[Member] = []

    def make(strategy: str) -> Member:
        made.append(Member(mock_servers, strategy))
        return made[-1]

    yield make
    for each in made:
        each.consumer.close()
