"""The whole of a storm: a cluster, its network, a database, workers, a source, and who judges them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from servers.postgres_server import PostgresServer

from storm.judge import Judge
from storm.parts.cluster import Cluster, drained
from storm.parts.disks import SmallDisk
from storm.parts.load import Load, Table
from storm.parts.targets import make_tables
from storm.parts.workers import SESSION, StormWorker

__all__ = ["Rig", "Scale"]

_EVER = {"max_attempts": None, "initial_delay": "100ms", "max_delay": "1s"}
_LOOK = 0.2


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a storm is. `tables`: of each kind of table in the main topic."""

    brokers: int = 3
    partitions: int = 6
    tables: int = 8
    rate: float = 200.0
    spark: bool = True
    spare: bool = False
    """w1 is never ended: what grows over the time is seen of it."""
    max_wait: str = "0s"
    """How long a batch waits for more."""
    seed: int = 1


class Rig:
    """Topic `storm` with three members, two dynamic and one static, and `remade`, which they read, too; topic
    `lone` with a member of its own, which is static; topic `spark` with one that has a Spark.

    Tables a*: into files; b*: into PostgreSQL, every other one only grows; c*: nowhere; all leave marks. b*
    and c* run in child processes of w0 and w2.
    """

    def __init__(self, folder: Path, scale: Scale, database: PostgresServer, url: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.scale, self.database, self.url = folder, scale, database, url
        self.cluster = Cluster(folder, scale.brokers)
        self.judge = Judge(folder / "marks.jsonl")
        self.small_disk = SmallDisk(folder / "small", mib=8)
        self.remade, self.remade_partitions = "remade", 2
        self.topics = {"storm": scale.partitions, self.remade: self.remade_partitions, "lone": 2}
        if scale.spark:
            self.topics["spark"] = 2
        both = ["storm", self.remade]
        self.members = [
            self._worker("w0", "group", both, state=self.small_disk.folder / "state", processes=2),
            self._worker("w1", "group", both),
            self._worker("w2", "group", both, processes=1, **{"group.instance.id": "w2"}),
        ]
        self.static = self.members[2]
        self.spared = self.members[1]
        self.lone = self._worker("lone", "lone-group", ["lone"], **{"group.instance.id": "lone"})
        self.spark = self._spark_worker() if scale.spark else None
        self.load = Load(self.cluster.bootstrap_servers, self._tables(), scale.rate, scale.seed)
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, name="judge", daemon=True)
        self.broken: list[str] = []

    @property
    def workers(self) -> list[StormWorker]:
        return [*self.members, self.lone, *([self.spark] if self.spark else [])]

    def start(self) -> None:
        """Returns when every worker is ready, and records are finished."""
        self.cluster.start()
        for topic, partitions in self.topics.items():
            self.cluster.create_topic(topic, partitions)
        make_tables(self.url, [table.name for table in self.load.tables if table.name[0] in "br"])
        for worker in self.workers:
            worker.start()
        self._looking.start()
        for worker in self.workers:
            worker.wait_ready(300)
        self.load.start()
        names = [table.full_name for table in self.load.tables]
        self.wait(lambda: all(self.judge.head(name) for name in names), "a record of each table is finished")

    def knows_the_remade(self) -> bool:
        """Whether some member has each of its partitions, and none is further than its beginning."""
        positions: dict[int, set[int]] = {}
        for member in self.members:
            try:
                partitions = member.process.status()["partitions"]
            except (AssertionError, httpx.HTTPError):
                return False  # it may have them
            for each in partitions:
                if each["topic"] == self.remade:
                    positions.setdefault(each["partition"], set()).add(each["position"] or 0)
        return len(positions) == self.remade_partitions and all(each == {0} for each in positions.values())

    def drain(self, within: float) -> None:
        """The source has ended, and all that it sent is finished and committed."""
        self.load.stop()
        tables = list(self.load.tables)
        deadline = time.monotonic() + within
        self.wait(
            lambda: all(self.judge.head(table.full_name) >= table.sent for table in tables),
            "all is finished",
            within,
        )
        groups = {(worker.group, topic) for worker in self.workers for topic in worker.topics}
        self.wait(
            lambda: drained([self.cluster.positions(*each) for each in groups]),
            "all is committed",
            max(30.0, deadline - time.monotonic()),
        )

    def end(self) -> dict[str, int | None]:
        """Every worker is told to stop: {its name: its exit code}."""
        codes = {worker.name: worker.end() for worker in self.workers}
        self._over.set()
        self._looking.join()
        self.judge.look()
        return codes

    def close(self) -> None:
        """Whatever still runs is killed."""
        self._over.set()
        self.load.end()
        for worker in self.workers:
            worker.close()
        self.cluster.close()
        self.small_disk.close()

    def wait(self, look: Callable[[], bool], what: str, within: float = 120.0) -> None:
        """Raises TimeoutError, and tells what is missing."""
        deadline = time.monotonic() + within
        while not look():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {within:.0f} s; {self._unfinished()}")
            time.sleep(_LOOK)

    def _unfinished(self) -> str:
        missing = {t.name: (self.judge.head(t.full_name), t.sent) for t in list(self.load.tables)}
        return f"finished and sent: { {name: each for name, each in missing.items() if each[0] < each[1]} }"

    def _look(self) -> None:
        while not self._over.wait(_LOOK):
            self.judge.look()

    def _tables(self) -> list[Table]:
        count = self.scale.tables
        found = [
            Table(
                f"{kind}{number}", "storm", (place * count + number) % self.topics["storm"], number % 2 * rows
            )
            for place, (kind, rows) in enumerate((("a", 0), ("b", 25), ("c", 0)))
            for number in range(count)
        ]
        found += [Table(f"r{number}", self.remade, number % 2, 25) for number in range(2)]
        found += [Table(f"l{number}", "lone", number % 2) for number in range(2)]
        if "spark" in self.topics:
            found += [Table(f"s{number}", "spark", number % 2, 25) for number in range(2)]
        return found

    def _worker(
        self,
        name: str,
        group: str,
        topics: list[str],
        state: Path | None = None,
        processes: int = 0,
        **properties: Any,
    ) -> StormWorker:
        folder = self.folder / name
        marks = {"type": "marks:Marks", "file": str(self.judge.file)}
        slow = {**marks, "row_sleep": 0.005}  # so that a batch runs at any moment
        files = {"type": "files", "directory": "lake", "rotate_bytes": "256KiB"}
        sql = {"type": "sql", "url": self.url, "create": False}
        targets = {"[al]": [marks, files], "[br]": [marks, sql], "c": [slow]}
        config = {
            "name": "storm",  # whose marks the database has: a member goes on with those of another
            "kafka": {
                "bootstrap_servers": self.cluster.worker_servers,
                "group_id": group,
                "topics": topics,
                "properties": {
                    "session.timeout.ms": int(SESSION * 1000),
                    "heartbeat.interval.ms": 1000,
                    "topic.metadata.refresh.interval.ms": 3000,
                    **properties,
                },
            },
            "format": "canal",
            "lanes": {"count": 4, "max_records": 500, "processes": processes},
            "batch": {"max_records": 50, "max_wait": self.scale.max_wait},
            "checkpoint": {"interval": "1s", "directory": str(state or folder / "state")},
            "shutdown_timeout": "10s",
            "revoke_timeout": "3s",
            "tables": [
                {"match": f"shop.{names}*", "handlers": handlers, "retry": _EVER}
                for names, handlers in targets.items()
            ],
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"format": "json"},
        }
        return StormWorker(folder, config, self.judge)

    def _spark_worker(self) -> StormWorker:
        from spark_sessions import LIGHT

        worker = self._worker("spark", "spark-group", ["spark"])
        lake = self.folder / "spark" / "lake"
        modes = [
            {"type": "spark", "name": mode, "mode": mode, "path": f"{lake}/{mode}/{{table}}"}
            | {"merge": {"max_age": "2s", "at_close": "60s"}}
            for mode in ("replica", "changelog")
        ]
        marks = {"type": "marks:Marks", "file": str(self.judge.file)}
        worker.process.config |= {
            "tables": [
                {
                    "match": "*",
                    "batch": {"max_records": 500, "max_wait": "1s"},
                    "handlers": [marks, *modes],
                    "retry": _EVER,
                }
            ],
            "spark": {**LIGHT, "start": "eager", "warehouse": str(lake)},
            "shutdown_timeout": "2m",
        }
        return worker
