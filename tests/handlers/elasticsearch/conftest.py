"""What the tests of Elasticsearch share."""

from __future__ import annotations

import pytest
from servers.search_node import SearchNode


@pytest.fixture
def database(search_node: SearchNode) -> str:
    """The name of one that nobody else has."""
    return search_node.new_name()
