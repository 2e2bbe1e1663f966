"""A group's checkpoints in a real Kafka and in a local file, and `binlane checkpoint` run as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from forked_commands import forked_binlane
from memory_store import loaded

from offsets.stores.file import FileStore
from offsets.stores.kafka import KafkaStore
from offsets.topic_ids import TopicIds
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition

__all__ = ["AHEAD", "RECORDS", "TEN", "Site", "checkpoint", "complaint", "shown", "started_checkpoint"]

# The records' timestamps in Kafka: one each hour from ten o'clock.
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)
RECORDS = 10
AHEAD = (OffsetRange(5, 6), OffsetRange(8, 10))


@dataclass
class Site:
    """One group on one topic of two partitions, with ten records in partition 0."""

    servers: str
    topic: str
    group: str
    folder: Path

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def file(self) -> FileStore:
        return FileStore(self.folder / "state", self.group)

    def topic_id(self) -> str:
        return TopicIds(AdminClient({"bootstrap.servers": self.servers})).now([self.topic], 20)[self.topic]

    def consumer(self, **settings: Any) -> Consumer:
        own = {"bootstrap.servers": self.servers, "group.id": self.group, "enable.auto.commit": "false"}
        return Consumer({**own, **settings})

    def kafka(self) -> dict[TopicPartition, Checkpoint]:
        consumer = self.consumer()
        store = KafkaStore(consumer, deadline=20)
        found = loaded(store, [TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)])
        store.close()
        consumer.close()
        # Without the topic's id, which nobody foretells.
        return {place: Checkpoint(*checkpoint[:2]) for place, checkpoint in found.items()}

    def commit(self, checkpoint: Checkpoint) -> dict[TopicPartition, Mark]:
        """Returns what the file is to know of it."""
        consumer = self.consumer()
        store = KafkaStore(consumer, deadline=20)
        marks = store.save({self.first: checkpoint})
        store.close()
        consumer.close()
        return marks

    def config(self, kafka: dict[str, Any] | None = None, **checkpoint: Any) -> Path:
        path = self.folder / "binlane.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "kafka": {
                        "bootstrap_servers": self.servers,
                        "group_id": self.group,
                        "topics": [self.topic],
                        **(kafka or {}),
                    },
                    "checkpoint": {"directory": str(self.folder / "state"), **checkpoint},
                    # Not here: moving a position must not need the handlers.
                    "tables": [{"match": "*", "handlers": [{"type": "no_such_module:Handler"}]}],
                }
            )
        )
        return path


def checkpoint(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`binlane checkpoint ARGUMENTS`."""
    return forked_binlane(["checkpoint", *arguments])


def started_checkpoint(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same, started as users start it."""
    command = [sys.executable, "-m", "binlane", "checkpoint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def shown(config: Path) -> dict[str, Any]:
    done = checkpoint("show", config, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What was said: one line, and nothing on standard output."""
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
