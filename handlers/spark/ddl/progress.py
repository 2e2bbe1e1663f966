"""What is begun and done of a statement where no Delta table can tell: in files beside the tables."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from handlers.mysql_ddl import TableName
from handlers.spark.ddl.target import Target
from handlers.spark.log.files import AlreadyThere
from handlers.spark.table_ref import path_safe

__all__ = ["Progress"]

_NAME_BYTES = 255


class _Written(msgspec.Struct):
    what: str


class Progress:
    """Of one step of one statement: `<root>/ddl/<topic>/<id>-<partition>-<offset>-<index>/<database>/<table>/
    <step>.begun` and `.done`, a few bytes each; of a topic without an id, `ddl/<topic>-<partition>...`. They
    stay: a statement may come again long after it was followed.
    """

    def __init__(self, target: Target, table: TableName, step: str, what: str) -> None:
        """`what` the step does: a file of an earlier release, which had no table in its path, counts if it
        says the same."""
        root = f"{target.around.root}/ddl"
        own = f"{path_safe(table.database) or '_'}/{path_safe(table.table)}/{step}"
        self._files = target.around.files
        self._what = what
        places = (target.at, *target.also_at)
        self._path, *self._others = [f"{root}/{_of_place(*place)}/{own}" for place in places]
        for topic, *numbers in places:
            name = f"{path_safe(topic)}-{'-'.join(map(str, numbers))}"
            if len(name.encode()) <= _NAME_BYTES:
                self._others.append(f"{root}/{name}/{step}")

    @property
    def has_begun(self) -> bool:
        return self._is_told("begun")

    @property
    def is_done(self) -> bool:
        return self._is_told("done")

    def begin(self) -> None:
        self._put("begun")

    def finish(self) -> None:
        self._put("done")

    def _is_told(self, state: str) -> bool:
        return any(self._tells(f"{path}.{state}") for path in (self._path, *self._others))

    def _tells(self, path: str) -> bool:
        try:
            return msgspec.json.decode(self._files.read(path), type=_Written).what == self._what
        except (FileNotFoundError, msgspec.DecodeError):
            return False

    def _put(self, state: str) -> None:
        with suppress(AlreadyThere):  # an earlier attempt's
            self._files.put(f"{self._path}.{state}", msgspec.json.encode(_Written(self._what)))


def _of_place(topic: str, partition: int, offset: int, index: int) -> str:
    """An id has a part of its own: a topic's name may be nearly as long as a file's."""
    return f"{'/'.join(map(path_safe, topic.split('@')))}-{partition}-{offset}-{index}"
