"""What is committed of a statement that failed half way, for when it comes again as a dead letter: by then
the newest commits of its table are others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from handlers.api import Change
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.spark.ddl.progress import folder_of
from handlers.spark.ddl.target import Place
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere, Files

Steps = Mapping[str, Sequence[str]]
"""Step -> the columns that were noted with it."""

_log = get_logger("handlers.spark")


class KeptSteps:
    """Of one statement: `<digest of its text and time>-<how many>.steps` in its folder (see Progress); the
    one with the most counts. They stay, as the letter may come again.
    """

    def __init__(
        self, files: Files, root: str, places: Sequence[Place], table: TableName, change: Change
    ) -> None:
        """`places`: those by which the statement is known, its own first. `table`: the change's."""
        self._files = files
        self._folders = [folder_of(f"{root}/ddl", place, table) for place in places]
        what = f"{change.source_time_ms} {change.op} {change.sql}"
        self._digest = hashlib.sha256(what.encode()).hexdigest()[:16]

    def look(self) -> Steps:
        """Raises BrokenLog, and what the store raises."""
        for folder in self._folders:
            names = [each.name for each in self._files.list(folder) if each.name.startswith(self._digest)]
            if names:
                path = f"{folder}/{max(names)}"
                try:
                    return msgspec.json.decode(self._files.read(path), type=dict[str, list[str]])
                except msgspec.DecodeError as error:
                    raise BrokenLog(
                        f"{path} does not tell which steps of the statement are done ({error}): restore it "
                        f"from a backup, or run the release that wrote it; without either, do by hand what "
                        f"the statement would have done, and leave its letter"
                    ) from None
        return {}

    def keep(self, steps: Steps) -> None:
        """Write down what is done. Raises nothing: what the statement failed with is told."""
        if not steps:
            return
        try:
            name = f"{self._digest}-{len(steps):04d}.steps"
            self._files.put(f"{self._folders[0]}/{name}", msgspec.json.encode(steps))
        except AlreadyThere:
            pass
        except Exception as error:
            _log.warning("ddl_steps_not_kept", folder=self._folders[0], steps=list(steps), error=str(error))
