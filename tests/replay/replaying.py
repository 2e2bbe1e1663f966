"""A worker that reads one captured stream from Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration.checkers import Run
from integration.process import WorkerProcess, eventually
from topics import Source

from worker.local.broker import Broker

__all__ = ["Replay"]


class Replay:
    """Never started yet; its configuration may be changed until it is."""

    def __init__(self, source: Source, broker: Broker, rules: Sequence[dict[str, Any]], folder: Path) -> None:
        """`rules`: the configuration's `tables`."""
        self.source = source
        self.config: dict[str, Any] = {
            "kafka": {
                "bootstrap_servers": broker.bootstrap_servers,
                "group_id": f"{folder.parent.name}-{folder.name}",
                **source.kafka,
                # A static member: who comes after a kill need not wait until the dead one is given up.
                "properties": {"group.instance.id": "replay"},
            },
            "format": source.format,
            "lanes": {"count": 4},
            "checkpoint": {"interval": "200ms", "directory": str(folder / "state")},
            "tables": list(rules),
            "http": {"host": "127.0.0.1", "port": 0},
            "logging": {"format": "json"},
        }
        self.worker = WorkerProcess(folder, self.config, Run(folder / "events.jsonl"))

    def to_the_end(self, within: float = 120) -> None:
        """Run until everything is finished and committed, and drain."""
        self.worker.start(within=within)
        eventually(self.is_at_the_end, within=within, what="everything committed")
        assert self.worker.sigterm(within) == 0, self.worker.tail()

    def is_at_the_end(self) -> bool:
        assert self.worker.alive()
        found = self.worker.status()
        assert found["state"] != "halted", self.worker.tail()
        committed = {(one["topic"], one["partition"]): one["committed"] for one in found["partitions"]}
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

    def close(self) -> None:
        """Kill it if it runs, and show how its log ends."""
        if self.worker.process is not None and self.worker.process.poll() is None:
            self.worker.kill9()
        print(self.worker.tail(25))
