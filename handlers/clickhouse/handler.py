"""The `clickhouse` handler: a row for each change, under a version of the source's order."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.clickhouse.client import ClickHouseClient
from handlers.clickhouse.options import ClickHouseOptions
from handlers.clickhouse.rights import check_server
from handlers.clickhouse.table import Table
from handlers.clickhouse.tables import Tables
from handlers.versioned.target import VersionedTarget

__all__ = ["ClickHouseHandler"]


class ClickHouseHandler(Handler):
    """See VersionedTarget."""

    options_model: ClassVar[type[ClickHouseOptions]] = ClickHouseOptions

    def __init__(self, **options: Any) -> None:
        self._options = ClickHouseOptions.model_validate(options)
        self._client: ClickHouseClient | None = None
        self._target: VersionedTarget[Table] | None = None

    def open(self, context: HandlerContext) -> None:
        """Connects when it is first needed: a server that is down then keeps no worker from starting.

        Raises OSError for a certificate that cannot be read.
        """
        self._client = ClickHouseClient(self._options, context.folder, context.lanes)
        self._target = VersionedTarget(Tables(self._client, self._options), self._options, context)

    def handle(self, batch: Batch) -> None:
        """Raises as VersionedTarget, and RefusedByServer."""
        assert self._target is not None, "handle comes after open"
        self._target.handle(batch)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._target = None

    def check(self, context: HandlerContext) -> None:
        """Which server it is. Raises ServerUnfit, TargetUnavailable, RefusedByServer, and OSError for a
        certificate that cannot be read."""
        with closing(ClickHouseClient(self._options, context.folder, 1)) as client:
            check_server(client, self._options.url)
