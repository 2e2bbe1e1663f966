"""The `elasticsearch` handler: a document for each row, under a version of the source's order."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.elasticsearch.client import SearchClient
from handlers.elasticsearch.index import Index
from handlers.elasticsearch.indexes import Indexes
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.elasticsearch.rights import check_cluster
from handlers.versioned.target import VersionedTarget

__all__ = ["ElasticsearchHandler"]


class ElasticsearchHandler(Handler):
    """See VersionedTarget."""

    options_model: ClassVar[type[ElasticsearchOptions]] = ElasticsearchOptions

    def __init__(self, **options: Any) -> None:
        self._options = ElasticsearchOptions.model_validate(options)
        self._client: SearchClient | None = None
        self._target: VersionedTarget[Index] | None = None

    def open(self, context: HandlerContext) -> None:
        """Connects when it is first needed: a cluster that is down then keeps no worker from starting.

        Raises OSError for a certificate that cannot be read.
        """
        self._client = SearchClient(self._options, context.folder, context.lanes)
        self._target = VersionedTarget(Indexes(self._client, self._options), self._options, context)

    def handle(self, batch: Batch) -> None:
        """Raises as VersionedTarget, and RefusedByCluster."""
        assert self._target is not None, "handle comes after open"
        self._target.handle(batch)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._target = None

    def check(self, context: HandlerContext) -> None:
        """Which cluster it is, and what may be done there. Raises ClusterUnfit, TargetUnavailable,
        RefusedByCluster, and OSError for a certificate that cannot be read."""
        with closing(SearchClient(self._options, context.folder, 1)) as client:
            check_cluster(client, self._options)
