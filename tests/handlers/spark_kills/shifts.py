"""Workers that live for a few steps, each in a process of its own that is forked from one. Any may be killed
or stopped before one of its storage operations."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Shifts"]

_PATIENCE = 60.0
_LOADED = (
    *(
        "told_changes",
        "storage_points",
        "obstore",
        "duckdb",
        "sqlglot",
        "pyarrow.acero",
        "pyiceberg.catalog.sql",
    ),
    *("sqlalchemy.dialects.sqlite.pysqlite", "handlers.spark.engine.lake", "handlers.mysql.ddl.statements"),
    *("handlers.spark.engine.table.iceberg_work", "pyiceberg.avro.decoder_fast"),
)
"""Else each worker would spend a second on it."""


class Shifts:
    """The process that forks. One request at a time."""

    def __init__(self) -> None:
        folders = [str(Path(__file__).parents[level]) for level in (0, 1, 2, 3)]
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *folders])
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "JAVA_HOME": "/no/java", "PATH": "/no/java"},
        )

    def begin(self, folder: Path, steps: Sequence[Sequence[Any]], **more: Any) -> tuple[int, str]:
        """Start a worker. Returns its process, and how it ended: `0`, `1` (an error, in the file `.told`),
        `KILL`, or `STOP`: it goes on when told to. `more`: see `_work`."""
        return self._asked({"folder": str(folder), "steps": list(steps), **more})

    def go_on(self, process: int) -> str:
        """Let a stopped worker continue."""
        return self._asked({"process": process})[1]

    def close(self) -> None:
        self._process.communicate()

    def _asked(self, request: Mapping[str, Any]) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        process, result = self._process.stdout.readline().split()
        return int(process), result


def _serve() -> None:
    """Answer requests until there are no more."""
    for name in _LOADED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        process = request.get("process")
        if process is not None:
            os.kill(process, 18)
        elif (process := os.fork()) == 0:
            code = 1
            try:
                _work(**request)
                code = 0
            except BaseException:
                Path(f"{request['folder']}.told").write_text(traceback.format_exc())
            os._exit(code)
        _, status = os.waitpid(process, os.WUNTRACED)
        ended = (
            "STOP" if os.WIFSTOPPED(status) else "KILL" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        )
        print(process, ended, file=answers, flush=True)


def _work(
    *,
    folder: str,
    steps: Sequence[Sequence[Any]],
    options: Mapping[str, Any],
    spark: Mapping[str, Any],
    at: int = 0,
    kind: str = "KILL",
    reads: bool = False,
    span: int = 1,
    environment: Mapping[str, str] = {},
    is_wide: bool = False,
) -> None:
    """`is_wide`: all columns are there from the beginning."""
    from spark_lake import Counted
    from storage_points import Points
    from told_changes import BATCHES, WIDE

    from handlers import HandlerContext
    from handlers.spark import SparkHandler

    os.environ.update(environment)
    # Before the first operation: the folder of a process that was killed has what it has put.
    points = Points(folder, at, kind, reads=reads, trace=f"{folder}.trace", span=span)
    points.is_on = True
    handler = SparkHandler(**options)
    errors: list[BaseException] = []
    context = HandlerContext(
        worker="test",
        handler="spark",
        folder=Path(folder),
        spark=spark,
        metrics=Counted(),
        stopping=bool,
        stop_worker=errors.append,
    )
    handler.open(context)
    worker = _Worker(handler, f"{folder}.done", WIDE if is_wide else BATCHES)
    for name, *given in steps:
        getattr(worker, name)(*given)
    if errors:
        raise errors[0]


class _Worker:
    def __init__(self, handler: Any, done: str, batches: Sequence[Sequence[Any]]) -> None:
        self._handler = handler
        self._done = done
        self._batches = batches

    def take(self, *numbers: int) -> None:
        """Give it these batches as one."""
        from handlers import Batch

        changes = [each for number in numbers for each in self._batches[number]]
        self._again(
            lambda: self._handler.handle(Batch("shop.orders", changes, database="shop", name="orders"))
        )
        with Path(self._done).open("a") as file:
            file.write(f"{numbers[-1]}\n")

    def merge(self) -> None:
        with self._handler._open.table("shop", "orders") as sink:
            self._again(sink.load)
            self._again(sink.merge)

    def tidy(self) -> None:
        """As the keeper does for an hour."""
        with self._handler._open.table("shop", "orders") as sink:
            for hours in (1, 2):
                with suppress(OSError):
                    sink.merges.tidy(time.monotonic() + 3600 * hours)

    def upkeep(self, retention: float) -> None:
        with self._handler._open.table("shop", "orders") as sink, suppress(OSError):
            sink.merges.optimize(2)
            sink.merges.vacuum(retention)

    def let_go(self) -> None:
        """Forget the table: it is gone."""
        opened = self._handler._open
        opened._search.round()
        assert not opened._tables.known()

    @staticmethod
    def _again(do: Any) -> None:
        """As lanes and merges do. A row is never refused for what a store says."""
        from handlers import Rejected, TargetUnavailable

        end, left = time.monotonic() + _PATIENCE, 10
        while True:
            try:
                do()
            except Rejected:
                raise
            except Exception as error:
                left -= not isinstance(error, TargetUnavailable)
                if not left or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return


if __name__ == "__main__":
    _serve()
