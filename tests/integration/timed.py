"""The handlers as they are, each telling when it was called and when it has handled what.

Lines of JSON in `handled.jsonl` beside the configuration: {"handler", "table", "event"}; event `called` has
"attempt", `handled` has "at" (seconds since 1970) and "sent" (of each change the source's milliseconds).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from handlers import Batch, Handler, HandlerContext
from handlers.files.handler import FilesHandler
from handlers.redis.handler import RedisHandler
from handlers.sql import SqlHandler
from handlers.webhook.handler import WebhookHandler

__all__ = ["TimedFiles", "TimedRedis", "TimedSql", "TimedWebhook"]


class _Timed(Handler):
    def open(self, context: HandlerContext) -> None:
        path = context.folder / "handled.jsonl"
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._name = context.handler
        super().open(context)

    def handle(self, batch: Batch) -> None:
        self._note(batch, event="called", attempt=batch.attempt)
        super().handle(batch)
        at = time.time()
        self._note(batch, event="handled", at=at, sent=[change.source_time_ms for change in batch.changes])

    def _note(self, batch: Batch, **line: Any) -> None:
        # One write: lines of two threads never mix.
        os.write(
            self._out, json.dumps({"handler": self._name, "table": batch.table, **line}).encode() + b"\n"
        )


class TimedFiles(_Timed, FilesHandler):
    pass


class TimedRedis(_Timed, RedisHandler):
    pass


class TimedSql(_Timed, SqlHandler):
    pass


class TimedWebhook(_Timed, WebhookHandler):
    pass
