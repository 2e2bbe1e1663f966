"""Delta's rule for transaction identifiers over a table in memory, and every order in which writers can meet.

A command begins with the newest version. It is skipped, without a word, when the table's transaction version
is at least its own; its commit fails when another one has set it since the command began.
(hasBeenExecuted in DeltaCommand.scala, and checkForUpdatedApplicationTransactionIdsThatCurrentTxnDependsOn in
ConflictChecker.scala; test_delta_commits.py shows both on Delta itself.)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.spark.delta.commits import exactly_once as commits
from handlers.spark.delta.commits import held_segments
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import fenced
from handlers.spark.engine.table.merges import Merges
from handlers.spark.engine.table.waiting import MergeSize
from handlers.spark.log.beside import Held, Told
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

__all__ = ["Actors", "DeltaModel", "Worker", "every_order", "segment"]

REF = TableRef("delta.`/t`", "/t", "/t.log", "binlane:shop.t")


class Actors:
    """Threads of which one at a time takes a step; which one, is chosen from without."""

    def __init__(self, choose: Callable[[Sequence[int], int | None], int]) -> None:
        self._choose = choose
        self._running: dict[int, threading.Semaphore] = {}
        self._paused = threading.Semaphore(0)
        self._number = threading.local()
        self._errors: list[BaseException] = []

    def start(self, act: Callable[[], None]) -> None:
        number, begin = len(self._running), threading.Semaphore(0)
        self._running[number] = begin

        def run() -> None:
            begin.acquire()
            self._number.own = number
            try:
                act()
            except BaseException as error:
                self._errors.append(error)
            self._running[number] = None  # type: ignore[assignment]
            self._paused.release()

        threading.Thread(target=run, daemon=True).start()

    def step(self) -> None:
        """Others may act before the caller goes on."""
        self._paused.release()
        self._running[self._number.own].acquire()

    def run(self) -> None:
        last: int | None = None
        while ready := [number for number, begin in self._running.items() if begin is not None]:
            last = self._choose(ready, last)
            self._running[last].release()
            self._paused.acquire()
        if self._errors:
            raise self._errors[0]


def every_order(run: Callable[[Actors], None], *, switches: int | None = None) -> int:
    """Call `run` once for each order of the steps of its actors; returns how many there are. `switches`: of
    those orders only that leave an actor which could go on so often."""
    path: list[int] = []
    orders = 0
    while True:
        choices = _Choices(path, switches)
        run(Actors(choices.choose))
        orders += 1
        while path and path[-1] + 1 == choices.widths[len(path) - 1]:
            path.pop()
        if not path:
            return orders
        path[-1] += 1


class _Choices:
    """Of one order: those of `path`, then the first there is, which is added to it."""

    def __init__(self, path: list[int], switches: int | None) -> None:
        self._path = path
        self._left = switches
        self.widths: list[int] = []
        """How many there were to choose from."""

    def choose(self, ready: Sequence[int], last: int | None) -> int:
        options = sorted(ready, key=lambda number: (number != last, number))
        if self._left == 0 and last in ready:
            options = options[:1]
        at = len(self.widths)
        self.widths.append(len(options))
        if at == len(self._path):
            self._path.append(0)
        chosen = options[self._path[at]]
        if self._left is not None and last in ready and chosen != last:
            self._left -= 1
        return chosen


class DeltaModel:
    """One table. Each commit is a version: its rows, its transaction version and its note."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors
        self.commits: list[tuple[list[int], int, str]] = []

    @property
    def rows(self) -> list[int]:
        return [row for rows, _, _ in self.commits for row in rows]

    def version_of(self, app: str) -> int:
        assert app == REF.app_id
        return self.commits[-1][1] if self.commits else -1

    def snapshot(self, _session: object, _ref: object) -> Any:
        self.actors.step()
        seen = self.version_of(REF.app_id)
        found = SimpleNamespace(isDefined=lambda: seen >= 0, get=lambda: seen)
        version = len(self.commits) - 1
        return SimpleNamespace(
            version=lambda: version,
            metadata=lambda: SimpleNamespace(id=lambda: f"table {id(self)}"),
            transactions=lambda: SimpleNamespace(get=lambda _: found),
        )

    def read(self, path: str) -> bytes:
        """The file of a commit."""
        _, txn, note = self.commits[int(path.removesuffix(".json")[-20:])]
        actions = [{"commitInfo": {"userMetadata": note}}, {"txn": {"appId": REF.app_id, "version": txn}}]
        return "\n".join(map(json.dumps, actions)).encode()

    def command(self, conf: dict[str, str], rows: list[int]) -> None:
        app = conf["spark.databricks.delta.write.txnAppId"]
        version = int(conf["spark.databricks.delta.write.txnVersion"])
        note = conf["spark.databricks.delta.commitInfo.userMetadata"]
        self.actors.step()
        begun = self.version_of(app)
        if begun >= version:
            return
        self.actors.step()
        if self.version_of(app) != begun:
            raise RuntimeError("ConcurrentTransactionException")
        self.commits.append((rows, version, note))


class Conf(dict[str, Any]):
    """Of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


class Worker:
    """Merges what it knows of the log, by the project's own code down to the command. `loses`: so many of its
    first commands go on without it, as those of a Connect server whose channel is lost."""

    def __init__(self, model: DeltaModel, first: int, last: int, *, loses: int = 0) -> None:
        self._model = model
        self._session: Any = SimpleNamespace(conf=Conf())
        self._loses = loses
        self.told_held = SimpleNamespace(look=Told)
        log: Any = SimpleNamespace(last=last, marks=Marks(), removed=lambda: 0)
        self.merges = Merges("shop.t", self, log)  # type: ignore[arg-type]
        for number in range(first, last + 1):
            self.merges.unmerged.add(segment(number), Shape(None, ()))  # type: ignore[arg-type]

    def work(self) -> None:
        while self.merges.unmerged.waiting().rows:
            try:
                self.merges.merge()
            except ConnectionError:
                continue

    # ---- what Merges asks of TableWork

    def held(self) -> Held:
        return held_segments.held_by(self._session, REF)

    def fit(self, _shape: Shape, _look_again: Callable[[], None]) -> None:
        """The table has the columns."""
        self._model.actors.step()

    def apply(self, segments: Sequence[Segment], _shape: Shape, *, after: int) -> None:
        numbers = [each.number for each in segments]
        note = CommitNote("w", "spark", numbers[0], numbers[-1], 0, {})
        with fenced(self._session, REF, note, after=after):
            conf = dict(self._session.conf)
            if self._loses:
                self._loses -= 1
                self._model.actors.start(lambda: self._orphan(conf, numbers))
                raise ConnectionError
            self._model.command(conf, numbers)

    def _orphan(self, conf: dict[str, str], numbers: list[int]) -> None:
        with suppress(RuntimeError):  # nobody is told
            self._model.command(conf, numbers)

    def merge_size(self) -> MergeSize:
        return MergeSize(SimpleNamespace(list=lambda _: ()), "/t.log", 2**30, table="shop.t")  # type: ignore[arg-type]

    def explained(self, error: Exception, _where: str) -> Exception:
        return error


def segment(number: int) -> Segment:
    return Segment(number, f"/t.log/{number}", 1, 1, 0, 0, 0, False)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Actors], DeltaModel]]:
    """Makes tables, of which one at a time is what the project's code sees."""

    def make(actors: Actors) -> DeltaModel:
        model = DeltaModel(actors)
        for module in (commits, held_segments):
            monkeypatch.setattr(module, "delta_snapshot", model.snapshot)
        monkeypatch.setattr(held_segments, "files_for", lambda _path, _spark: model)
        return model

    yield make
    commits._committed.clear()
