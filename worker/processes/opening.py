"""What a child process needs to open a handler."""

from __future__ import annotations

import pickle
from typing import Any

from handlers import HandlerContext
from worker.configuration import HandlerEntry


class Opening:
    """A handler that the processes open."""

    def __init__(self, number: int, entry: HandlerEntry, context: HandlerContext) -> None:
        self.number = number
        self.entry = entry
        self.context = context

    def packed(self) -> tuple[bytes, str, dict[str, Any]]:
        context = self.context
        names = ("worker", "handler", "lane", "lanes", "start_timeout", "spark")
        return pickle.dumps(self.entry), str(context.folder), {name: getattr(context, name) for name in names}
