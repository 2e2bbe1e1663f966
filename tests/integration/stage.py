"""What a test of a whole run needs: a topic, its source, workers that share one group, and their judges."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from integration.checkers import Guarantee, Run
from integration.process import WorkerProcess, eventually
from integration.source import Source

__all__ = ["Stage"]

PROCESSES = int(os.environ.get("BINLANE_TEST_PROCESSES", "0"))
"""`lanes.processes` of all workers, unless a test says otherwise: its promises hold with 0 and with 2."""


class Stage:
    """One topic and one consumer group; every worker records into the same run."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, folder: Path, processes: int = PROCESSES
    ) -> None:
        """`processes`: `lanes.processes` of its workers."""
        self.processes = processes
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.group = f"{topic}-group"
        self.partitions = partitions
        self.folder = folder
        self.run = Run(folder / "events.jsonl")
        self.workers: list[WorkerProcess] = []

    def source(self, **options: Any) -> Source:
        return Source(self.bootstrap_servers, self.topic, **options)

    def gate(self, name: str = "gate") -> Path:
        """A file that is there until a test unlinks it: the recording handler's `hold` and `fail_while`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        path.touch()
        return path

    def recording(self, **options: Any) -> dict[str, Any]:
        """A configuration entry of the recording handler."""
        return {"type": "recording:Recording", "file": str(self.run.file), **options}

    def worker(
        self,
        name: str = "worker",
        *,
        properties: Mapping[str, Any] | None = None,
        tables: list[dict[str, Any]] | None = None,
        handlers: list[dict[str, Any]] | None = None,
        **sections: Any,
    ) -> WorkerProcess:
        """A worker of the group, not yet started. `handlers` and the other keys of one table are for all
        tables, unless `tables` says it whole; `sections` replace keys of the configuration.

        Short times, so that a test need not wait: commits every 200 ms, retries after 50 ms, and a member
        that was killed is noticed after 6 s (the least that a broker allows by default).
        """
        new_protocol = (properties or {}).get("group.protocol") == "consumer"
        classic = {} if new_protocol else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        retry = {"max_attempts": 3, "initial_delay": "50ms", "max_delay": "200ms"}
        config: dict[str, Any] = {
            "name": name,
            "kafka": {
                "bootstrap_servers": self.bootstrap_servers,
                "group_id": self.group,
                "topics": [self.topic],
                "properties": {**classic, **(properties or {})},
            },
            "format": "canal",
            "lanes": {"count": 8},
            "checkpoint": {"interval": "200ms", "directory": str(self.folder / name / "state")},
            "shutdown_timeout": "15s",
            "revoke_timeout": "5s",
            "tables": tables or [{"match": "*", "handlers": handlers or [self.recording()], "retry": retry}],
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"format": "json"},
        }
        config.update(sections)
        if config["kafka"].get("ddl_topics"):
            config["lanes"].pop("processes", None)
        else:
            config["lanes"] = {"processes": self.processes, **config["lanes"]}
        worker = WorkerProcess(self.folder / name, config, self.run)
        self.workers.append(worker)
        return worker

    # ---- Kafka's side ----

    def committed(self) -> dict[int, int]:
        """{partition: the group's committed offset}; -1001 where there is none."""
        return {one.partition: one.offset for one in self._ask_committed()}

    def committed_metadata(self) -> dict[int, str]:
        return {one.partition: one.metadata or "" for one in self._ask_committed()}

    def members(self) -> int:
        """Of the group, as its coordinator tells."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        found = admin.describe_consumer_groups([self.group])[self.group].result(10)
        return len(found.members)

    def ends(self) -> dict[int, int]:
        """{partition: its end}: with transactions, markers and aborted records included."""
        consumer = self._observer()
        try:
            return {
                number: consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=10)[1]
                for number in range(self.partitions)
            }
        finally:
            consumer.close()

    def wait_committed_to_the_end(self, within: float = 90.0) -> None:
        ends = self.ends()
        wanted = {partition: end for partition, end in ends.items() if end > 0}

        def reached() -> bool:
            committed = self.committed()
            return all(committed[partition] == end for partition, end in wanted.items())

        eventually(reached, within=within, what=f"the committed offsets reach {wanted}", every=0.2)

    # ---- the run ----

    def wait_rows(self, count: int, within: float = 60.0) -> None:
        """Until so many rows were handled, repeated ones counted once."""

        def enough() -> bool:
            for worker in self.workers:
                if worker.process is not None and not worker.expected_to_end:
                    worker.alive()
            return self.run.handled() >= count

        eventually(enough, within=within, what=f"{count} rows handled", every=0.1)

    def check(self, *guarantees: Guarantee) -> None:
        """AssertionError with everything that broke a guarantee."""
        events = self.run.events()
        broken = [fault for guarantee in guarantees for fault in guarantee.broken(events)]
        assert not broken, "\n".join(broken)

    def close(self) -> None:
        """Kill what still runs; the logs go to the test's output, which pytest shows when it failed."""
        for worker in self.workers:
            if worker.process is not None:
                if worker.process.poll() is None:
                    worker.kill9()
                print(f"---- {worker.folder.name}\n{worker.tail(25)}")

    def _ask_committed(self) -> list[TopicPartition]:
        consumer = self._observer()
        try:
            asked = [TopicPartition(self.topic, number) for number in range(self.partitions)]
            return consumer.committed(asked, timeout=10)
        finally:
            consumer.close()

    def _observer(self) -> Consumer:
        """Never subscribes, so it is no member of the group."""
        return Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.group})
