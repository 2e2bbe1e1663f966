"""A handler that tells its password wherever it may: in errors, its status, logs and threads of its own."""

from __future__ import annotations

import logging
import threading
from typing import Any

from handlers import Batch, Handler, HandlerContext

__all__ = ["Guarded"]


class Guarded(Handler):
    """`opens: false` fails in `open`."""

    def __init__(self, *, password: str, opens: bool = True) -> None:
        self._password = password
        self._opens = opens

    def open(self, context: HandlerContext) -> None:
        logging.getLogger("guarded").warning("login with %s", self._password)
        thread = threading.Thread(target=self._break)
        thread.start()
        thread.join()
        if not self._opens:
            raise ConnectionError(f"no login with {self._password}")

    def _break(self) -> None:
        raise ValueError(f"a thread with {self._password}")

    def status(self) -> dict[str, Any]:
        return {"login": self._password}

    def handle(self, batch: Batch) -> None:
        raise RuntimeError(f"denied for {self._password}")
