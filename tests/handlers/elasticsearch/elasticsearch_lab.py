"""A handler of Elasticsearch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servers.search_node import SearchNode

from handlers.elasticsearch import ElasticsearchHandler
from handlers.testing import opened

__all__ = ["handler"]


@contextmanager
def handler(node: SearchNode, **options: Any) -> Iterator[ElasticsearchHandler]:
    """Opened."""
    with opened(ElasticsearchHandler(url=node.url, **options)) as made:
        yield made
