"""Tables of Spark, each mode. What is handed over waits beside them; many are merged together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from delta_reading import read_delta
from spark_sessions import SHARED

from handlers import Batch, Handler, HandlerContext
from handlers.spark import SparkHandler

from ..source import Row
from ..told import Limits
from ..writers.writing import Names
from .appended import folded, lines_of
from .interface import Target, texts

Mode = Literal["replica", "history", "changelog"]


class _Reopened(Handler):
    """A handler of a folder. What waits is merged when it closes."""

    def __init__(self, folder: Path, mode: Mode, *, without_spark: bool) -> None:
        merge = {"max_age": "1h", "at_close": "9m", "engine": "auto" if without_spark else "spark"}
        self._options: dict[str, Any] = {
            "mode": mode,
            "merge": merge,
            "path": f"{folder}/{{database}}/{{table}}",
        }
        self._folder = folder
        self._start()

    def handle(self, batch: Batch) -> None:
        self._current.handle(batch)

    def close(self) -> None:
        self._current.close()

    def settle(self) -> None:
        self._current.close()
        self._start()

    def _start(self) -> None:
        self._current = SparkHandler(**self._options)
        context = HandlerContext(worker="w", handler="spark", folder=self._folder, spark=SHARED)
        self._current.open(context)


@contextmanager
def lake_target(keeper: Any, folder: Path, mode: Mode, *, without_spark: bool = False) -> Iterator[Target]:
    """`keeper`: of the one Spark, which goes on from one handler to the next."""
    spark = keeper.get().session
    place = folder / f"{mode}-{without_spark}"
    place.mkdir()
    handler = _Reopened(place, mode, without_spark=without_spark)

    def rows(names: Names) -> list[Row]:
        path = place / names.database / names.table
        if not (path / "_delta_log").exists():
            return []
        found = read_delta(path, spark=lambda: spark)
        if mode == "changelog":
            return folded(names, lines_of(names, found))
        current = (row for row in found if row.get("_current", True))
        return [texts({n: v for n, v in row.items() if not n.startswith("_")}) for row in current]

    def forget(names: Names) -> None:
        for path in (place / names.database, place / "lake/_binlane" / names.database):
            shutil.rmtree(path, ignore_errors=True)

    try:
        without_key: Any = {"replica": "match", "history": "refuse", "changelog": "untried"}[mode]
        limits = Limits(shows_gaps=mode != "changelog", without_key=without_key)
        yield Target("spark", handler, rows, forget, limits, settle=handler.settle, at_once=24)
    finally:
        handler.close()
