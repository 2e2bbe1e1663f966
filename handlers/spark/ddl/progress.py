"""What is begun and done of a statement where no Delta table can tell: in files beside the tables."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from handlers.mysql.ddl import TableName
from handlers.spark.ddl.target import Place, Target
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere
from handlers.spark.table_ref import path_safe

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
        self._files = target.around.files
        self._what = what
        places = (target.at, *target.also_at)
        self._path, *self._others = [f"{folder_of(root, place, table)}/{step}" for place in places]
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
        except FileNotFoundError:
            return False
        except msgspec.DecodeError as error:
            raise BrokenLog(
                f"{path} does not tell what it is there for ({error}), so nobody knows whether this step of "
                f"the statement is done: restore it from a backup, or run the release that wrote it; or, "
                f"when you have seen that the step is not done, remove the file"
            ) from None

    def _put(self, state: str) -> None:
        with suppress(AlreadyThere):  # an earlier attempt's
            self._files.put(f"{self._path}.{state}", msgspec.json.encode(_Written(self._what)))


def folder_of(root: str, place: Place, table: TableName) -> str:
    """An id has a part of its own: a topic's name may be nearly as long as a file's."""
    topic, *numbers = place
    of_place = f"{'/'.join(map(path_safe, topic.split('@')))}-{'-'.join(map(str, numbers))}"
    return f"{root}/{of_place}/{path_safe(table.database) or '_'}/{path_safe(table.table)}"
