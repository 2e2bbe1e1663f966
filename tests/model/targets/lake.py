"""Tables of Spark, each mode. What is handed over waits beside them; many are merged together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from delta_reading import read_delta
from pyiceberg.catalog import load_catalog
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

    def __init__(self, folder: Path, mode: Mode, section: dict[str, Any], **options: Any) -> None:
        merge = {"max_age": "1h", "at_close": "9m", **options.pop("merge", {})}
        self._options: dict[str, Any] = {"mode": mode, "merge": merge, **options}
        self._folder = folder
        self._section = section
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
        context = HandlerContext(worker="w", handler="spark", folder=self._folder, spark=self._section)
        self._current.open(context)


@contextmanager
def lake_target(keeper: Any, folder: Path, mode: Mode, *, without_spark: bool = False) -> Iterator[Target]:
    """`keeper`: of the one Spark, which goes on from one handler to the next."""
    spark = keeper.get().session
    place = folder / f"{mode}-{without_spark}"
    place.mkdir()
    handler = _Reopened(
        place,
        mode,
        SHARED,
        path=f"{place}/{{database}}/{{table}}",
        merge={"engine": "auto" if without_spark else "spark"},
    )

    def rows(names: Names) -> list[Row]:
        path = place / names.database / names.table
        if not (path / "_delta_log").exists():
            return []
        return _of_the_source(names, mode, read_delta(path, spark=lambda: spark))

    def forget(names: Names) -> None:
        for path in (place / names.database, place / "lake/_binlane" / names.database):
            shutil.rmtree(path, ignore_errors=True)

    try:
        yield Target("spark", handler, rows, forget, _limits(mode), settle=handler.settle, at_once=24)
    finally:
        handler.close()


@contextmanager
def iceberg_target(folder: Path, mode: Mode, uri: str = "sqlite:///catalog.db") -> Iterator[Target]:
    """Tables of an SQL catalog: no Spark."""
    place = folder / f"iceberg-{mode}"
    place.mkdir()
    given = {"type": "sql", "uri": uri}
    handler = _Reopened(place, mode, {"iceberg": given}, format="iceberg", prefix="_")
    their_uri = uri.replace("sqlite:///", f"sqlite:///{place}/").replace("postgresql:", "postgresql+psycopg:")
    catalog = load_catalog("default", **given | {"uri": their_uri, "warehouse": str(place / "lake/iceberg")})

    def rows(names: Names) -> list[Row]:
        name = (names.database, names.table)
        if not catalog.table_exists(name):
            return []
        return _of_the_source(names, mode, catalog.load_table(name).scan().to_arrow().to_pylist())

    def forget(names: Names) -> None:
        if catalog.table_exists((names.database, names.table)):
            catalog.drop_table((names.database, names.table))
        shutil.rmtree(place / "lake/_binlane/!iceberg" / names.database, ignore_errors=True)

    try:
        limits = Limits(
            shows_gaps=mode != "changelog", without_key="untried" if mode == "changelog" else "refuse"
        )
        yield Target("spark", handler, rows, forget, limits, settle=handler.settle, at_once=4)
    finally:
        handler.close()


def _limits(mode: Mode) -> Limits:
    without_key: Any = {"replica": "match", "history": "refuse", "changelog": "untried"}[mode]
    return Limits(shows_gaps=mode != "changelog", without_key=without_key)


def _of_the_source(names: Names, mode: Mode, found: list[dict[str, Any]]) -> list[Row]:
    """What the source has now, by a table's rows."""
    if mode == "changelog":
        return folded(names, lines_of(names, found))
    current = (row for row in found if row.get("_current", True))
    return [texts({n: v for n, v in row.items() if not n.startswith("_")}) for row in current]
