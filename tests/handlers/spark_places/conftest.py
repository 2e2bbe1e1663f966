"""Spark's own servers, one of each for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers.spark_cluster import ConnectNode, SparkCluster


@pytest.fixture(scope="module")
def spark_cluster() -> Iterator[SparkCluster]:
    """A standalone cluster that serves. A test that kills a part of it starts it again."""
    cluster = SparkCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def connect_server() -> Iterator[ConnectNode]:
    """A Spark Connect server that serves. A test that kills it starts it again."""
    node = ConnectNode()
    try:
        node.start()
        yield node
    finally:
        node.close()
