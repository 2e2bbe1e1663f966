"""What the tests of ClickHouse share."""

from __future__ import annotations

import pytest
from servers.clickhouse_server import ClickHouseServer


@pytest.fixture
def database(clickhouse: ClickHouseServer) -> str:
    """The name of one that nobody else has."""
    return clickhouse.new_name()
