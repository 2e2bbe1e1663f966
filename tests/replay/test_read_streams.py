"""At any moment of each captured stream, what is read without Spark is what the view shows in Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from captured import POSTGRES_STREAMS
from decoding import STREAMS, batches
from delta_reading import check_read
from postgres_streams import batches_of_postgres
from spark_sessions import SHARED, SparkKeeper

from handlers import Batch, HandlerContext, Rejected
from handlers.spark import SparkHandler
from handlers.spark.read.current import current
from handlers.spark.read.view import NothingToSee
from handlers.spark.runtime.errors import SPARK_ERRORS

pytestmark = pytest.mark.long
_SOME = ("shop.orders", "shop.t-drop")
"""One with most rows, and one that is dropped and made again."""
_LOOKS = 12
"""Moments that are compared, of each mode of a stream."""


class Handler:
    """One handler with a lake of its own; it merges only what DDL needs, and what the test says."""

    def __init__(self, folder: Path, keeper: SparkKeeper, mode: str) -> None:
        self._lake = folder / mode
        self._keeper = keeper
        path = f"{self._lake}/{{database}}/{{table}}"
        merge = {"max_age": "1h", "at_close": "10m", "keep": "1h"}
        self._handler = SparkHandler(mode=mode, path=path, merge=merge, columns={"rating": "string"})
        self._handler.open(HandlerContext(worker="test", handler=mode, folder=folder, spark=SHARED))

    def take(self, batch: Batch) -> None:
        with suppress(Rejected):  # what a stream does not tell is the same for both readers
            self._handler.handle(batch)

    def merge(self) -> None:
        for sink in self._handler._open._tables.known():  # type: ignore[union-attr]
            sink.merge()

    def check(self) -> int:
        """Compare all tables. Returns how many have rows to see."""
        seen = 0
        for log in self._lake.glob("_binlane/*/*/pending"):
            path = str(self._lake / log.parts[-3] / log.parts[-2])
            with suppress(NothingToSee):
                self._check(path)
                seen += 1
        return seen

    def _check(self, path: str, looks: int = 3) -> None:
        try:
            check_read(current(self._keeper.get().session, path), path)
        except (AssertionError, *SPARK_ERRORS):
            if looks == 1:
                raise
            # A statement may have been followed meanwhile, and files removed: the handler's threads do that.
            self._check(path, looks - 1)

    def close(self) -> None:
        self._handler.close()


def _batches(stream: str) -> Iterable[Batch]:
    if stream in POSTGRES_STREAMS:
        return batches_of_postgres(stream, [], in_calendar=True)
    return batches(stream, dict(STREAMS)[stream])


@pytest.fixture(params=["replica", pytest.param("changelog", marks=pytest.mark.soak)])
def handler(request: pytest.FixtureRequest, tmp_path: Path, spark_keeper: SparkKeeper) -> Iterator[Handler]:
    spark_keeper.get()
    made = Handler(tmp_path, spark_keeper, request.param)
    yield made
    made.close()


def _compare(handler: Handler, batches: Sequence[Batch], looks: int, chance: random.Random) -> int:
    places, seen = {*chance.sample(range(len(batches)), min(looks, len(batches)))}, 0
    for place, batch in enumerate(batches):
        handler.take(batch)
        if place in places:
            if chance.random() < 0.3:
                handler.merge()
            seen += handler.check()
    return seen + handler.check()


@pytest.mark.soak
def test_some_tables_of_a_stream_are_read_alike(handler: Handler) -> None:
    found = [batch for batch in _batches("canal") if batch.table in _SOME]
    assert _compare(handler, found, 2, random.Random(1)) > 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stream", [*(name for name, _ in STREAMS), *POSTGRES_STREAMS])
def test_each_stream_is_read_alike(handler: Handler, stream: str) -> None:
    assert _compare(handler, list(_batches(stream)), _LOOKS, random.Random(stream)) > _LOOKS
