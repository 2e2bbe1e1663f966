"""What is begun and done of a statement where no Delta table can tell: in files beside the tables."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from handlers.spark.ddl.target import Place, Surroundings
from handlers.spark.log.files import AlreadyThere
from handlers.spark.table_ref import path_safe

__all__ = ["Progress"]


class Progress:
    """Of one step of one statement: `<root>/ddl/<topic>-<partition>-<offset>-<index>/<step>.begun` and
    `.done`, a few bytes each. They stay: a statement may come again long after it was followed."""

    def __init__(self, around: Surroundings, at: Place, step: str) -> None:
        topic, partition, offset, index = at
        self._files = around.files
        self._path = f"{around.root}/ddl/{path_safe(topic)}-{partition}-{offset}-{index}/{step}"

    @property
    def has_begun(self) -> bool:
        return self._files.exists(f"{self._path}.begun")

    @property
    def is_done(self) -> bool:
        return self._files.exists(f"{self._path}.done")

    def begin(self, what: str) -> None:
        self._put("begun", what)

    def finish(self, what: str) -> None:
        self._put("done", what)

    def _put(self, state: str, what: str) -> None:
        with suppress(AlreadyThere):  # an earlier attempt's
            self._files.put(f"{self._path}.{state}", msgspec.json.encode({"what": what}))
