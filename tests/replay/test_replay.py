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
from integration.checkers import Run
from integration.process import WorkerProcess, eventually
from replica import Differences, Replica
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from topics import ALL_STREAMS, Source, put

from worker.broker import Broker

MakeReplay = Callable[..., "Replay"]


class Replay:
    """A worker that reads one stream, and the replicas that it keeps."""

    def __init__(self, source: Source, broker: Broker, replicas: dict[str, Replica], folder: Path) -> None:
        self.source = source
        self.replicas = replicas
        handlers = [
            {"type": "sql", "name": name, "url": replica.url} | _schema(replica)
            for name, replica in replicas.items()
        ]
        self.config: dict[str, Any] = {
            "kafka": {
                "bootstrap_servers": broker.bootstrap_servers,
                "group_id": folder.name,
                **source.kafka,
                # A static member: who comes after a kill need not wait until the dead one is given up.
                "properties": {"group.instance.id": "replay"},
            },
            "format": source.format,
            "lanes": {"count": 4},
            "checkpoint": {"interval": "200ms", "directory": str(folder / "state")},
            "tables": [{"match": match, "handlers": handlers} for match in ("shop.*", "crm.*")],
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"format": "json"},
        }
        self.worker = WorkerProcess(folder, self.config, Run(folder / "events.jsonl"))

    def to_the_end(self, within: float = 30) -> None:
        """Run until everything is finished and committed, and drain."""
        self.worker.start()
        eventually(self.is_at_the_end, within=within, what="everything committed", every=0.1)
        assert self.worker.sigterm() == 0, self.worker.tail()

    def is_at_the_end(self) -> bool:
        assert self.worker.alive()
        found = self.worker.status()["partitions"]
        committed = {(one["topic"], one["partition"]): one["committed"] for one in found}
        return all(committed.get(place) == end for place, end in self.source.ends.items())

    def killed_after(self, finished: int) -> None:
        """Run until so many records are finished in this run, and kill it: before its end."""
        self.worker.start(ready=False)

        def reached() -> bool:
            if not self.worker.alive() or self.worker.url is None:
                return False
            return self.worker.metric("binlane_records_finished_total") >= finished

        eventually(reached, within=60, what=f"{finished} records finished", every=0.01)
        assert not self.is_at_the_end(), "it came to its end before it could be killed"
        self.worker.kill9()

    def differences(self) -> dict[str, Differences]:
        tables = CAPTURED.get(self.source.stream)
        return {name: replica.differences(tables) for name, replica in self.replicas.items()}


def _schema(replica: Replica) -> dict[str, str]:
    return {} if replica.schema is None else {"schema": replica.schema}


@pytest.fixture(scope="module")
def sources(broker: Broker) -> Callable[..., Source]:
    """sources("canal", twice=False): the stream, put into Kafka when it is first asked for."""
    found: dict[tuple[str, bool], Source] = {}

    def get(stream: str, *, twice: bool = False) -> Source:
        if (stream, twice) not in found:
            found[stream, twice] = put(broker, stream, twice=twice)
        return found[stream, twice]

    return get


@pytest.fixture
def make_replay(
    sources: Callable[..., Source],
    broker: Broker,
    postgres: PostgresServer,
    mariadb: MariaDBServer,
    tmp_path: Path,
) -> Iterator[MakeReplay]:
    """make_replay("canal"): a worker that was never started, and empty targets."""
    made: list[Replay] = []

    def make(stream: str, *, twice: bool = False) -> Replay:
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
        made.append(Replay(sources(stream, twice=twice), broker, replicas, tmp_path / name))
        return made[-1]

    yield make
    for replay in made:
        if replay.worker.process is not None and replay.worker.process.poll() is None:
            replay.worker.kill9()
        print(replay.worker.tail(25))


def expected_of(stream: str) -> dict[str, Differences]:
    return {target: expected(stream, target) for target in ("postgresql", "mariadb", "sqlite")}


@pytest.mark.parametrize("stream", ALL_STREAMS)
def test_a_stream_leaves_the_rows_of_its_source_also_when_all_of_it_comes_again(
    make_replay: MakeReplay, stream: str
) -> None:
    replay = make_replay(stream)
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)
    replay.config["checkpoint"]["force"] = True
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)
    applied_before = sum(line["count"] for line in replay.worker.logged("changes_applied_before"))
    assert applied_before > 0


@pytest.mark.parametrize("stream", ALL_STREAMS)
def test_a_stream_leaves_the_rows_of_its_source_when_the_worker_is_killed_on_the_way(
    make_replay: MakeReplay, stream: str
) -> None:
    replay = make_replay(stream)
    replay.config["batch"] = {"max_records": 5}
    replay.config["lanes"] = {"count": 2}
    for finished in (40, 90):
        replay.killed_after(finished)
    replay.to_the_end()
    assert replay.differences() == expected_of(stream)


@pytest.mark.parametrize("stream", ALL_STREAMS)
def test_a_stream_whose_records_come_twice_each_leaves_the_rows_of_its_source(
    make_replay: MakeReplay, stream: str
) -> None:
    """With offsets of their own, as a producer without idempotence writes them again; and in order by row."""
    replay = make_replay(stream, twice=True)
    replay.config["lanes"]["order_by"] = "row"
    replay.to_the_end()
    # Of a row without a key nobody can tell whether it came before.
    repeated = {"debezium-strings": 0, "debezium-unwrap": 70}.get(stream, 31)
    for target, found in replay.differences().items():
        wanted = expected(stream, target)
        if repeated:
            wanted = {**wanted, ("crm.event_log", "row too many"): repeated}
        assert found == wanted, target
