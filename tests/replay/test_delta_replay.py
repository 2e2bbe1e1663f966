"""Each captured stream through a real Kafka, a real worker and a real Spark into Delta tables."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import pytest
from captured import truth
from decoding import STREAMS, batches
from delta_tables import Place, Tables, places_in_parquet, wrong_types
from differences import CAPTURED, expected
from replaying import Replay
from replica import Row
from spark_sessions import LIGHT, SparkKeeper
from topics import Source, delivered

from worker.local.broker import Broker

pytestmark = pytest.mark.long

Victim = Literal["worker", "spark"]

_HANDLERS: dict[str, dict[str, Any]] = {
    "replica": {"mode": "replica"},
    "history": {"mode": "history"},
    # From decimal to varchar, in the middle of each stream: no type but string holds both.
    "changelog": {"mode": "changelog", "columns": {"rating": "string"}},
    "files": {"mode": "changelog", "format": "parquet"},
}
Rules = Mapping[str, Sequence[str]]
"""Match -> names of _HANDLERS."""
_EVERY_MODE: Rules = {
    "crm.c*": ["replica", "changelog", "files"],
    "crm.event_log": ["replica", "changelog", "files"],
    "shop.o*": ["replica", "history", "files"],
    "crm.*": ["replica", "files"],
    "shop.*": ["replica", "files"],
}
_REPLICAS: Rules = {match: ["replica", "files"] for match in ("crm.event_log", "shop.orders", "shop.t-drop")}
_EACH = [
    # What waits is merged by statements and at the end, seldom by its age: each merge takes a second of CPU.
    # One without a key, one with most rows, one dropped and made again; all tables are in the soak, and in
    # test_replay.py.
    pytest.param("canal", _REPLICAS, "60s", id="canal-replicas"),
    # Three to six minutes each: each Delta table is another hundred commits.
    *(pytest.param(name, _EVERY_MODE, "3s", id=name, marks=pytest.mark.soak) for name, _ in STREAMS),
]
_PATIENCE = 900.0
"""Seconds that a run may take on a busy machine."""
_SEED = int(os.environ.get("BINLANE_SEED") or time.time_ns())
"""Of the moments of the kills."""
_BY_CHANCE = {
    # The source had it for a few changes: a batch that holds the next ones, too, leaves nothing of it.
    "debezium-unwrap": [("crm.contacts", "column too many: extra")],
}
"""Differences that depend on where batches end."""
_ALL_TYPES_TOLD = ("canal", "debezium-schemas")
"""Streams that tell each column's type, sizes included."""


class DeltaReplay(Replay):
    """A worker that keeps replicas, histories and changelogs of a stream's tables, all at once."""

    def __init__(self, source: Source, broker: Broker, folder: Path, handlers: Rules, max_age: str) -> None:
        """`handlers`: match -> names of _HANDLERS. `max_age`: of `merge`."""
        self._max_age = max_age
        self.lake = folder / "lake"
        rules = [
            {"match": match, "handlers": [self._handler(name) for name in names]}
            for match, names in handlers.items()
        ]
        super().__init__(source, broker, rules, folder)
        self.config["spark"] = {**LIGHT, "start": "eager"}
        self.config["shutdown_timeout"] = "150s"

    def _handler(self, name: str) -> dict[str, Any]:
        return {
            "type": "spark",
            "name": name,
            **_HANDLERS[name],
            "path": f"{self.lake}/{name}/{{database}}/{{table}}",
            "merge": {"max_age": self._max_age, "at_close": "120s"},
            "upkeep": {"optimize_every": "0s", "vacuum_every": "0s"},
        }

    def is_at_the_end(self) -> bool:
        """If nothing was left to read, it must have found its tables: it merges no others as it stops."""
        answer = self.worker.get("/metrics")
        has_tables = answer is not None and "\nbinlane_spark_waiting_rows{" in answer.text
        return has_tables and super().is_at_the_end()

    def killed_within(
        self, seconds: float, victim: Literal["worker", "spark"], chance: random.Random
    ) -> None:
        """Run it, and kill it at some moment in its first seconds of work."""
        self.worker.start(within=_PATIENCE)
        spark = self.worker.spark_pid(_PATIENCE)
        time.sleep(chance.uniform(0, seconds))
        if victim == "worker":
            self.worker.kill9()
            return
        os.kill(spark, signal.SIGKILL)
        assert self.worker.wait(60) == 1, self.worker.tail()


MakeReplay = Callable[[str, Rules, str], DeltaReplay]


@pytest.fixture
def make_replay(sources: Callable[..., Source], broker: Broker, tmp_path: Path) -> Iterator[MakeReplay]:
    """make_replay("canal", {"shop.*": ["replica"]}, "20s"): each record comes twice; never started yet."""
    made: list[DeltaReplay] = []

    def make(stream: str, handlers: Rules, max_age: str) -> DeltaReplay:
        made.append(DeltaReplay(sources(stream, twice=True), broker, tmp_path / stream, handlers, max_age))
        return made[-1]

    yield make
    for replay in made:
        replay.close()


@pytest.mark.timeout(2 * _PATIENCE)
@pytest.mark.parametrize(("stream", "rules", "max_age"), _EACH)
def test_a_stream_leaves_the_rows_of_its_source_whatever_is_killed_and_though_each_record_comes_twice(
    make_replay: MakeReplay, spark_keeper: SparkKeeper, stream: str, rules: Rules, max_age: str
) -> None:
    """The worker or its Java process is killed, in the soak three times each stream (24 times in all), at
    any moments; each record comes with two offsets, as a producer without idempotence writes it again; two of
    the streams go in order by row."""
    print(f"BINLANE_SEED={_SEED}")
    chance = random.Random(f"{_SEED} {stream}")
    replay = make_replay(stream, rules, max_age)
    replay.config["batch"] = {"max_records": 20 if rules is _EVERY_MODE else 50}
    replay.config["lanes"] = {"count": 4, "order_by": "row" if stream in ("maxwell", "dts") else "table"}
    victims: list[Victim] = ["worker", "spark"]
    if rules is _EVERY_MODE:
        victims.append(chance.choice(("worker", "spark")))
    chance.shuffle(victims)
    if rules is _REPLICAS:  # each start of a Spark takes as long as all that the stream itself does
        del victims[1:]
    if stream == "debezium-unwrap":
        # Updates of a table without a key do not say which row they were: they are rejected, and told.
        replay.config["tables"][list(rules).index("crm.event_log")]["on_failure"] = "skip"
    for victim in victims:
        replay.killed_within(8, victim, chance)
    replay.to_the_end(within=_PATIENCE)

    def tables(handler: str) -> Tables:
        return Tables(replay.lake / handler, lambda: spark_keeper.get().session)

    replicas, histories = tables("replica"), tables("history")
    # Of a row without a key nobody can tell whether it came before.
    repeated = {
        "crm.event_log": {"debezium-strings": 0, "debezium-unwrap": 62}.get(stream, 31),
        "crm.only_unique": int(stream in ("canal", "maxwell", "dts")),  # to others its unique key is one
    }
    wanted = {
        (table, what): rows for (table, what), rows in expected(stream, "delta").items() if kept(table, rules)
    }
    wanted |= {
        (table, "row too many"): rows for table, rows in repeated.items() if rows and kept(table, rules)
    }
    sources = [table for table in CAPTURED.get(stream, tuple(truth())) if kept(table, rules)]
    found = replicas.differences(sources)
    for difference in _BY_CHANCE.get(stream, ()):
        if difference not in found:
            wanted.pop(difference)
    assert found == wanted
    if stream in _ALL_TYPES_TOLD:
        assert wrong_types(replicas) == {}
    for table in replicas.names & histories.names:
        rows = replicas.rows(table)
        columns = list(rows[0]) if rows else []
        current = histories.current(table)
        assert _counted(current, columns) == _counted(rows, columns), table
    places = Counter({place: count for place, count in changes_of(stream).items() if kept(place[0], rules)})
    assert places_in_parquet(replay.lake / "files") == places
    assert tables("changelog").places() == Counter(
        {place: count for place, count in places.items() if "changelog" in handlers_of(place[0], rules)}
    )


def kept(table: str, rules: Rules) -> bool:
    """Whether there is a rule for it."""
    return any(fnmatch(table, match) for match in rules)


def handlers_of(table: str, rules: Rules) -> Sequence[str]:
    """Those of its first match."""
    return next(names for match, names in rules.items() if fnmatch(table, match))


def _counted(rows: list[Row], columns: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(repr(row[column]) for column in columns) for row in rows)


def changes_of(stream: str) -> Counter[Place]:
    """All changes that the format finds in the stream's records when each comes twice."""
    format_name = dict(STREAMS)[stream]
    return Counter(
        (batch.table, change.op, change.topic, change.partition, change.offset, change.index)
        for batch in batches(stream, format_name, delivered(stream, twice=True))
        for change in batch.changes
    )
