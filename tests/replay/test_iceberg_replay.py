"""Each captured stream through a real Kafka and a real worker into Iceberg tables, without Spark."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from captured import truth
from decoding import STREAMS
from differences import CAPTURED, expected
from iceberg_tables import IcebergTables
from pyiceberg.catalog import load_catalog
from replaying import Replay
from replica import Row
from test_delta_replay import _BY_CHANCE, Rules, changes_of
from topics import Source

from worker.local.broker import Broker

pytestmark = pytest.mark.long

# One column, renamed, and from decimal to varchar in the middle of each stream: Iceberg cannot.
_TYPES = {"columns": {"score": "string", "rating": "string"}}
_HANDLERS: dict[str, dict[str, Any]] = {
    "replica": {"mode": "replica", **_TYPES},
    "history": {"mode": "history", **_TYPES},
    "changelog": {"mode": "changelog", **_TYPES},
}
# Not those that are renamed, dropped, or changed in other ways that are refused; nor those without a key.
_RULES: Rules = {
    "crm.event_log": ["changelog"],
    "crm.contacts": ["replica", "history", "changelog"],
    "crm.uuids": ["replica", "changelog"],
    "crm.dec_key": ["replica", "history"],
    "crm.tags": ["replica"],
    "crm.child": ["replica"],
    "crm.legacy": ["replica"],
    "shop.customers": ["replica", "history"],
}
_PATIENCE = 240.0
_SEED = int(os.environ.get("BINLANE_SEED") or time.time_ns())
"""Of the moments of the kills."""


class IcebergReplay(Replay):
    """A worker that keeps replicas, histories and changelogs of a stream's tables, all at once."""

    def __init__(self, source: Source, broker: Broker, folder: Path) -> None:
        self._stream = folder.name
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        rules = [
            {"match": match, "handlers": [self._handler(name) for name in names]}
            for match, names in _RULES.items()
        ]
        super().__init__(source, broker, rules, folder)
        self.config["spark"] = {"iceberg": self._catalog, "warehouse": str(folder / "lake")}
        self.config["batch"] = {"max_records": 50}
        self.config["shutdown_timeout"] = "100s"

    def _handler(self, name: str) -> dict[str, Any]:
        return {
            "type": "spark",
            "format": "iceberg",
            "prefix": "_",
            "name": name,
            **_HANDLERS[name],
            "table": f"{name}-{{database}}.{{table}}",
            "merge": {"max_age": "500ms", "at_close": "60s"},
        }

    def is_at_the_end(self) -> bool:
        """Not before what a killed run left in its logs is found and merged, too: a stop does not search."""
        if not super().is_at_the_end():
            return False
        told = [(one["handler"], each) for one in self.worker.status()["handlers"] for each in one["tables"]]
        merged = {(handler, each["table"]) for handler, each in told if not each["waiting_rows"]}
        there = {place[0] for place in changes_of(self._stream)}
        return merged.issuperset((name, table) for table in there for name in _RULES.get(table, ()))

    def killed_within(self, seconds: float, chance: random.Random) -> None:
        """Run it, and kill it at some moment in its first seconds of work."""
        self.worker.start(within=60)
        time.sleep(chance.uniform(0, seconds))
        self.worker.kill9()

    def tables(self, handler: str) -> IcebergTables:
        return IcebergTables(load_catalog("default", **self._catalog), handler)


@pytest.fixture
def make_replay(
    sources: Callable[..., Source], broker: Broker, tmp_path: Path
) -> Iterator[Callable[[str], IcebergReplay]]:
    """make_replay("canal"): each record comes twice; never started yet."""
    made: list[IcebergReplay] = []

    def make(stream: str) -> IcebergReplay:
        made.append(IcebergReplay(sources(stream, twice=True), broker, tmp_path / stream))
        return made[-1]

    yield make
    for replay in made:
        replay.close()


@pytest.mark.timeout(2 * _PATIENCE)
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(name, marks=[] if name == "canal" else pytest.mark.soak)
        for name, _ in STREAMS
        if name != "debezium-unwrap"  # its updates of tables without a key are rejected: see the Delta tables
    ],
)
def test_a_stream_leaves_the_rows_of_its_source_though_the_worker_is_killed_and_each_record_comes_twice(
    make_replay: Callable[[str], IcebergReplay], stream: str
) -> None:
    print(f"BINLANE_SEED={_SEED}")
    chance = random.Random(f"{_SEED} {stream}")
    replay = make_replay(stream)
    replay.config["lanes"] = {"count": 4, "order_by": "row" if stream in ("maxwell", "dts") else "table"}
    for _ in range(2):
        replay.killed_within(6, chance)
    replay.to_the_end(within=_PATIENCE)

    replicas, histories = replay.tables("replica"), replay.tables("history")
    captured = [each for each in CAPTURED.get(stream, tuple(truth())) if "replica" in _RULES.get(each, ())]
    wanted = {each: rows for each, rows in expected(stream, "delta").items() if each[0] in captured}
    found = replicas.differences(captured)
    for difference in _BY_CHANCE.get(stream, ()):
        if difference not in found:
            wanted.pop(difference, None)
    assert found == wanted
    for table in replicas.names & histories.names:
        rows = replicas.rows(table)
        columns = list(rows[0]) if rows else []
        assert _counted(histories.current(table), columns) == _counted(rows, columns), table
    places = changes_of(stream)
    assert replay.tables("changelog").places() == Counter(
        {place: count for place, count in places.items() if "changelog" in _RULES.get(place[0], ())}
    )


def _counted(rows: list[Row], columns: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(repr(row[column]) for column in columns) for row in rows)
