"""What a DDL statement needs besides its own table, and records of its begun and finished steps.

The records are in the user metadata of their commits. Files beside the tables have what a Delta table cannot
record, or cannot record any more."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from handlers.api import Change
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.spark.delta.commits.commit_notes import read_note
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef, path_safe

_NAME_BYTES = 255

Steps = Mapping[str, Sequence[str]]
"""Step -> the columns recorded with it."""

_log = get_logger("handlers.spark")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Things that a statement may need besides its own table."""

    options: SparkOptions
    """The handler's."""
    ref_of: Callable[[TableName], TableRef]
    files: Files
    root: str
    """The worker's own folder or URI, for records of finished renames."""
    settle: Callable[[TableName], None] = lambda _: None
    """Merge all waiting changes of a source table, and leave one segment without rows in its log. Called for
    every table before it is moved or dropped. Otherwise, the next start would merge the rest of the log into
    whichever table has that name then."""
    leaving: Callable[[TableName], None] = lambda _: None
    """Called after `settle` for a source table whose Delta table is about to be dropped or renamed. Also
    called for one whose name another table is about to get. Its log's rows are in the table that leaves."""
    databases_of: Callable[[str], Iterable[str]] = lambda _: ()
    """The databases that contain a known source table of this name."""
    handles: Callable[[str], bool] = lambda _: True
    """Whether the handler receives the records of a source table ("database.table")."""
    overrides: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Lower-case column -> its type, whatever the source's type is."""
    next_version: Callable[[TableRef], NextVersion | None] = lambda _: None
    """Returns a table's next version, to be committed without Spark. None if Spark must make it."""
    create: Callable[[TableRef, Mapping[str, str], Mapping[str, str], str, Callable[[], None]], bool] = (
        lambda *_: False
    )
    """Creates a table with these columns, properties and user metadata, after a call of the last one. Returns
    False if Spark must do it."""


Place = tuple[str, int, int, int]
"""(topic, partition, offset, index) of the statement."""


class Step(msgspec.Struct, frozen=True):
    """A finished step."""

    at: Place
    step: str
    columns: tuple[str, ...] = ()
    """Those that the step is about."""


msgspec.json.Decoder(Step)  # `step_in` in two threads at once would crash while it is not prepared


def noted(note: str, step: Step) -> str:
    """Return a commit's user metadata, `note`, with the step."""
    metadata = msgspec.json.decode(note)
    metadata.setdefault("binlane", {})["ddl"] = msgspec.to_builtins(step)
    return msgspec.json.encode(metadata).decode()


def step_in(metadata: str | None, at: Collection[Place]) -> Step | None:
    """Return the step of a note. None for another writer's commit, or one of rows."""
    told = (read_note(metadata) or {}).get("ddl")
    try:
        step = None if told is None else msgspec.convert(told, Step)
    except msgspec.ValidationError:
        return None
    return step if step is not None and step.at in at else None


class _Written(msgspec.Struct):
    what: str


_read_written = msgspec.json.Decoder(_Written).decode


class Progress:
    """The state of one step of one statement: small files `<step>.begun` and `<step>.done` in
    `<root>/ddl/<topic>/<id>-<partition>-<offset>-<index>/<database>/<table>/`. For a topic without an id, the
    path is `ddl/<topic>-<partition>...`. They are kept, because a statement may be repeated much later."""

    def __init__(
        self, around: Surroundings, places: Sequence[Place], table: TableName, step: str, what: str
    ) -> None:
        """`places`: see KeptSteps. `what`: the step's effect. A file of an earlier release, without a table
        in its path, counts if its text is the same."""
        root = f"{around.root}/ddl"
        self._files = around.files
        self._what = what
        self.path, *self._others = [f"{folder_of(root, place, table)}/{step}" for place in places]
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

    @property
    def away(self) -> str:
        """Return where the begun step moves the table's folder. A worker that knows the topic's id moves it
        where one that does not know the id would."""
        begun = [each for each in (self.path, *self._others) if self._tells(f"{each}.begun")]
        return f"{(begun or [self.path])[-1]}.away"

    def begin(self) -> None:
        self._put("begun")

    def finish(self) -> None:
        self._put("done")

    def _is_told(self, state: str) -> bool:
        return any(self._tells(f"{path}.{state}") for path in (self.path, *self._others))

    def _tells(self, path: str) -> bool:
        try:
            return _read_written(self._files.read(path)).what == self._what
        except FileNotFoundError:
            return False
        except msgspec.DecodeError as error:
            raise BrokenLog(
                f"{path} does not say what it is for ({error}), so it is unknown whether this step of the "
                "statement is done: restore it from a backup, or run the release that wrote it; or, if you "
                "have checked that the step is not done, remove the file"
            ) from None

    def _put(self, state: str) -> None:
        with suppress(AlreadyThere):  # an earlier attempt wrote it
            self._files.put(f"{self.path}.{state}", msgspec.json.encode(_Written(self._what)))


def folder_of(root: str, place: Place, table: TableName) -> str:
    """Return a statement's folder. A topic's id is a separate part: the name may use up the length."""
    topic, *numbers = place
    of_place = f"{'/'.join(map(path_safe, topic.split('@')))}-{'-'.join(map(str, numbers))}"
    return f"{root}/{of_place}/{path_safe(table.database) or '_'}/{path_safe(table.table)}"


class KeptSteps:
    """Committed steps of a statement that failed halfway. It may be repeated as a dead letter, when they are
    no longer among the newest commits of its table.

    File: `<digest of its text and time>-<number of steps>.steps` in its folder (see Progress). The file with
    the most steps counts. Files are kept, because the letter may be replayed again."""

    def __init__(
        self, files: Files, root: str, places: Sequence[Place], table: TableName, change: Change
    ) -> None:
        """`places`: places that identify the statement, its own first. `table`: the change's."""
        self._files = files
        self._folders = [folder_of(f"{root}/ddl", place, table) for place in places]
        what = f"{change.source_time_ms} {change.op} {change.sql}"
        self._digest = hashlib.sha256(what.encode()).hexdigest()[:16]

    def look(self) -> Steps:
        """Return the recorded steps. Raises BrokenLog, and what the store raises."""
        for folder in self._folders:
            names = [each.name for each in self._files.list(folder) if each.name.startswith(self._digest)]
            if names:
                path = f"{folder}/{max(names)}"
                try:
                    return msgspec.json.decode(self._files.read(path), type=dict[str, list[str]])
                except msgspec.DecodeError as error:
                    raise BrokenLog(
                        f"{path} does not say which steps of the statement are done ({error}): restore it "
                        "from a backup, or run the release that wrote it; without either, apply the "
                        "statement by hand, and leave its letter"
                    ) from None
        return {}

    def keep(self, steps: Steps) -> None:
        """Record the finished steps. Raises nothing, because the caller reports the statement's own error."""
        if not steps:
            return
        try:
            name = f"{self._digest}-{len(steps):04d}.steps"
            self._files.put(f"{self._folders[0]}/{name}", msgspec.json.encode(steps))
        except AlreadyThere:
            pass
        except Exception as error:
            _log.warning("ddl_steps_not_kept", folder=self._folders[0], steps=list(steps), error=str(error))
