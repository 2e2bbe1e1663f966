"""Each captured stream through a real Kafka and a real worker, by `sql` into three databases at once: what is
there at the end are the source's own rows, but for what the tool does not send or sends wrong.

So it is when the worker is killed on the way, when the whole stream comes again, and when each record comes
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from differences import CAPTURED, expected
from replaying import Replay
from replica import Differences, Replica
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from topics import ALL_STREAMS, Source

from worker.local.broker import Broker

pytestmark = pytest.mark.long

MakeReplay = Callable[..., "SqlReplay"]


def some(*streams: str) -> list[Any]:
    """These, and in `make soak` the others."""
    return [
        pytest.param(stream, marks=() if stream in streams else pytest.mark.soak) for stream in ALL_STREAMS
    ]


# What the records of each stream are in SQL is shown in test_in_process.py. What Kafka and the worker do with
# them, whatever the tool: one stream whose statements come with the rows, one with a topic of their own.
WAYS = some("debezium-schemas")


class SqlReplay(Replay):
    """A worker that reads one stream, and the replicas that it keeps."""

    def __init__(self, source: Source, broker: Broker, replicas: dict[str, Replica], folder: Path) -> None:
        handlers = [
            {"type": "sql", "name": name, "url": replica.url} | _schema(replica)
            for name, replica in replicas.items()
        ]
        rules: list[dict[str, Any]] = [
            {"match": match, "handlers": handlers} for match in ("crm.event_log", "shop.*", "crm.*")
        ]
        if source.stream == "debezium-unwrap":
            # Updates of a table without a key do not say which row they were: they are rejected.
            rules[0]["on_failure"] = "skip"
        super().__init__(source, broker, rules, folder)
        self.replicas = replicas

    def differences(self) -> dict[str, Differences]:
        tables = CAPTURED.get(self.source.stream)
        return {name: replica.differences(tables) for name, replica in self.replicas.items()}


def _schema(replica: Replica) -> dict[str, str]:
    return {} if replica.schema is None else {"schema": replica.schema}


@pytest.fixture
def make_replay(
    sources: Callable[..., Source],
    broker: Broker,
    postgres: PostgresServer,
    mariadb: MariaDBServer,
    tmp_path: Path,
) -> Iterator[MakeReplay]:
    """make_replay("canal"): a worker that was never started, and empty targets."""
    made: list[SqlReplay] = []

    def make(stream: str, *, twice: bool = False) -> SqlReplay:
        name = f"{tmp_path.name}-{len(made)}"
        # Databases are MariaDB's schemas, and each replay needs its own.
        schemas = f"{name[-40:]}_{{database}}"
        for database in ("shop", "crm"):
            mariadb.new_database(schemas.format(database=database))
        replicas = {
            "postgresql": Replica(postgres.new_database(name)),
            "mariadb": Replica(mariadb.new_database(f"{name[-40:]}_marks"), schemas),
            "sqlite": Replica(f"sqlite:///{tmp_path / name}.db"),
        }
        made.append(SqlReplay(sources(stream, twice=twice), broker, replicas, tmp_path / name))
        return made[-1]

    yield make
    for replay in made:
        replay.close()


def expected_of(stream: str) -> dict[str, Differences]:
    return {target: expected(stream, target) for target in ("postgresql", "mariadb", "sqlite")}


@pytest.mark.parametrize("stream", WAYS)
def test_a_stream_leaves_the_rows_of_its_source_also_when_all_of_it_comes_again(
    make_replay: MakeReplay, stream: str
) -> None:
    replay = make_replay(stream)
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)
    replay.config["checkpoint"]["force"] = True
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)
    passed_over = sum(line["count"] for line in replay.worker.logged("changes_passed_over"))
    assert passed_over > 0


# Also test_delta_replay.py; each target alone: integration/test_targets_killed.py.
@pytest.mark.soak
@pytest.mark.parametrize("stream", ALL_STREAMS)
def test_a_stream_leaves_the_rows_of_its_source_when_the_worker_is_killed_on_the_way(
    make_replay: MakeReplay, stream: str
) -> None:
    replay = make_replay(stream)
    replay.config["batch"] = {"max_records": 5}
    replay.config["lanes"] = {"count": 2}
    for rule in replay.config["tables"]:  # without, it may be through before it is killed
        rule["handlers"].append({"type": "resting:Resting", "seconds": 0.05})
    for finished in (40, 90):
        replay.killed_after(finished)
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)


# Also test_delta_replay.py, with kills beside; each target alone: handlers/targets/test_targets.py.
@pytest.mark.soak
@pytest.mark.parametrize("stream", ALL_STREAMS)
def test_a_stream_whose_records_come_twice_each_leaves_the_rows_of_its_source(
    make_replay: MakeReplay, stream: str
) -> None:
    """With offsets of their own, as a producer without idempotence writes them again; and in order by row."""
    # A packet that comes again has its statements once more, behind rows of what they made: no stream is so.
    replay = make_replay(stream, twice=stream != "canal-packets")
    replay.config["lanes"]["order_by"] = "row"
    replay.to_the_end()
    # Of a row without a key nobody can tell whether it came before.
    repeated = {"debezium-strings": 0, "debezium-unwrap": 62, "canal-packets": 0}.get(stream, 31)
    for target, found in replay.differences().items():
        wanted = expected(stream, target)
        if repeated:
            wanted = {**wanted, ("crm.event_log", "row too many"): repeated}
        assert found == wanted, target
