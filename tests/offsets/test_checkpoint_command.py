"""`binlane checkpoint`: run as a process against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import yaml
from confluent_kafka import Consumer, Producer

from offsets.stores import FileEntry, FileStore, KafkaStore
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.broker import Broker

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

    def consumer(self, **settings: Any) -> Consumer:
        own = {"bootstrap.servers": self.servers, "group.id": self.group, "enable.auto.commit": "false"}
        return Consumer({**own, **settings})

    def kafka(self) -> dict[TopicPartition, Checkpoint]:
        consumer = self.consumer()
        store = KafkaStore(consumer, deadline=20)
        found = store.load([TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)])
        store.close()
        consumer.close()
        return found

    def commit(self, checkpoint: Checkpoint) -> None:
        consumer = self.consumer()
        store = KafkaStore(consumer, deadline=20)
        store.save({self.first: checkpoint})
        store.close()
        consumer.close()

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


@pytest.fixture
def site(broker: Broker, group: str, tmp_path: Path) -> Site:
    topic = broker.create_topic(f"cdc.{group}", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for hour in range(RECORDS):
        moment = int(TEN.timestamp() * 1000) + hour * 3_600_000
        producer.produce(topic, b"{}", partition=0, timestamp=moment)
    assert producer.flush(20) == 0
    return Site(broker.bootstrap_servers, topic, group, tmp_path)


def checkpoint(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "worker.cli", "checkpoint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def shown(config: Path) -> dict[str, Any]:
    done = checkpoint("show", config, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def set_to(site: Site, config: Path, *where: object) -> subprocess.CompletedProcess[str]:
    return checkpoint("set", config, "--topic", site.topic, "--partition", 0, *where)


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What was said: one line, and nothing on standard output."""
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


# ---- show ----


def test_a_group_without_a_past_begins_at_initial(site: Site) -> None:
    found = shown(site.config(initial="latest"))
    assert found["group"] == site.group
    assert [(each["topic"], each["partition"]) for each in found["partitions"]] == [
        (site.topic, 0),
        (site.topic, 1),
    ]
    first = found["partitions"][0]
    assert (first["beginning"], first["end"]) == (0, RECORDS)
    assert first["stores"] == {"file": None, "kafka": None}
    assert (first["start"]["offset"], first["start"]["place"]) == (RECORDS, "latest")
    assert first["start"]["source"] == "initial"
    assert "neither the local file nor Kafka" in first["start"]["reason"]


def test_every_store_is_shown_with_what_is_finished_ahead(site: Site) -> None:
    site.file.save({site.first: Checkpoint(3, AHEAD)})
    site.file.acknowledge({site.first: 3})
    site.commit(Checkpoint(3, (OffsetRange(6, 7),)))
    first = shown(site.config())["partitions"][0]
    assert first["stores"] == {
        "file": {"offset": 3, "finished_ahead": 3, "ahead": [[5, 6], [8, 10]], "acknowledged": 3},
        "kafka": {"offset": 3, "finished_ahead": 1, "ahead": [[6, 7]]},
    }
    assert first["start"]["offset"] == 3
    assert first["start"]["ahead"] == [[5, 7], [8, 10]]
    assert "agree on 3" in first["start"]["reason"]


def test_a_position_that_somebody_moved_in_kafka_wins(site: Site) -> None:
    site.file.save({site.first: Checkpoint(7)})
    site.file.acknowledge({site.first: 7})
    site.commit(Checkpoint(2))
    start = shown(site.config())["partitions"][0]["start"]
    assert (start["offset"], start["source"]) == (2, "kafka")
    assert "moved" in start["reason"]


@pytest.mark.parametrize(
    ("initial", "offset"),
    [("2026-03-01T12:30:00Z", 3), ("2030-01-01T00:00:00Z", RECORDS), ("2020-01-01T00:00:00Z", 0)],
)
def test_a_time_begins_at_the_first_record_from_then_on(site: Site, initial: str, offset: int) -> None:
    site.commit(Checkpoint(5))
    start = shown(site.config(initial=initial, force=True))["partitions"][0]["start"]
    assert (start["offset"], start["source"]) == (offset, "force")


def test_an_offset_that_kafka_does_not_have_is_told(site: Site) -> None:
    site.commit(Checkpoint(400))
    start = shown(site.config())["partitions"][0]["start"]
    assert (start["place"], start["offset"]) == (400, 0)
    assert start["lost"] == f"Kafka has nothing from {RECORDS} on: the topic was made anew or cut"


def test_topics_are_found_by_regular_expression_and_missing_ones_told(site: Site) -> None:
    config = site.config(kafka={"topics": [f"^{site.topic[:-3]}", "cdc.no.such"]})
    found = shown(config)
    assert {each["topic"] for each in found["partitions"]} == {site.topic}
    assert found["warnings"] == ["no topic matches cdc.no.such of kafka.topics"]


def test_people_get_a_table(site: Site) -> None:
    site.file.save({site.first: Checkpoint(3, AHEAD)})
    site.commit(Checkpoint(3))
    done = checkpoint("show", site.config())
    assert done.returncode == 0
    assert done.stderr == ""
    for text in (f"group {site.group}", f"{site.topic}[0]", "0 to 10", "+3 ahead", "agree on 3", "(file)"):
        assert text in done.stdout


def test_a_damaged_file_is_told_and_kafka_shown(site: Site) -> None:
    site.commit(Checkpoint(3))
    site.file.path.parent.mkdir()
    site.file.path.write_text("scribble")
    done = checkpoint("show", site.config(), "--json")
    found = json.loads(done.stdout)
    assert "is damaged" in found["warnings"][0]
    assert found["partitions"][0]["start"]["source"] == "kafka"
    assert "checkpoint_file_damaged" in done.stderr


def test_a_file_of_a_newer_version_is_told(site: Site) -> None:
    site.file.path.parent.mkdir()
    site.file.path.write_text('{"binlane_checkpoint":99}\n')
    done = checkpoint("show", site.config())
    assert done.returncode == 1
    assert "newer binlane" in complaint(done)


def test_an_unreachable_broker_is_told(site: Site) -> None:
    done = checkpoint("show", site.config(kafka={"bootstrap_servers": "127.0.0.1:1"}))
    assert done.returncode == 1
    assert "127.0.0.1:1" in complaint(done)


# ---- set ----


def test_a_position_is_moved_in_every_store(site: Site) -> None:
    site.file.save({site.first: Checkpoint(7, AHEAD[1:])})
    site.commit(Checkpoint(7, AHEAD[1:]))
    config = site.config(kafka={"properties": {"group.instance.id": "replica-0"}})
    done = set_to(site, config, "--offset", 2)
    assert done.returncode == 0, done.stderr
    assert f"{site.topic}[0] stands at 2 now" in done.stdout
    assert site.kafka() == {site.first: Checkpoint(2)}
    assert site.file.load_entries([site.first]) == {site.first: FileEntry(2, (), 2)}
    assert "agree on 2" in shown(config)["partitions"][0]["start"]["reason"]


def test_a_group_that_never_ran_can_be_placed(site: Site) -> None:
    assert set_to(site, site.config(), "--offset", RECORDS).returncode == 0
    assert site.kafka() == {site.first: Checkpoint(RECORDS)}


def test_a_time_moves_to_the_first_record_from_then_on_and_says_whose_time_it_is(site: Site) -> None:
    done = set_to(site, site.config(), "--time", "2026-03-01T14:00:00+01:00")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(3)}
    assert "stands at 3 now" in done.stdout
    assert "Kafka timestamp (not the source's time) at or after 2026-03-01T13:00:00.000Z" in done.stdout


def test_a_time_after_the_last_record_moves_to_the_end_and_says_so(site: Site) -> None:
    done = set_to(site, site.config(), "--time", "2030-01-01")
    assert done.returncode == 0, done.stderr
    assert site.kafka() == {site.first: Checkpoint(RECORDS)}
    assert "so this is the end" in done.stdout


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, site: Site) -> Iterator[Consumer]:
    consumer = site.consumer(**{"group.protocol": request.param, "client.id": "binlane"})
    consumer.subscribe([site.topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def test_an_active_group_is_left_alone(site: Site, member: Consumer) -> None:
    site.file.save({site.first: Checkpoint(7)})
    member.commit(offsets=[confluent_kafka.TopicPartition(*site.first, 7)], asynchronous=False)
    done = set_to(site, site.config(), "--offset", 2)
    assert done.returncode == 1
    said = complaint(done)
    assert f"group {site.group} is active (binlane at 127.0.0.1)" in said
    assert "stop its workers first" in said
    assert site.kafka() == {site.first: Checkpoint(7)}
    assert site.file.load([site.first]) == {site.first: Checkpoint(7)}


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (["--partition", 0, "--offset", 11], 1, "has offsets 0 to 10, found 11; nothing was moved"),
        (["--partition", 5, "--offset", 0], 1, "no partition 5 of topic"),
        (["--partition", 0], 2, "either --offset or --time"),
        (["--partition", 0, "--offset", 1, "--time", "2026-03-01"], 2, "either --offset or --time"),
        (["--partition", 0, "--time", "noon"], 2, "ISO 8601"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    site: Site, where: Sequence[object], code: int, said: str
) -> None:
    site.commit(Checkpoint(4))
    done = checkpoint("set", site.config(), "--topic", site.topic, *where)
    assert done.returncode == code
    assert said in complaint(done)
    assert site.kafka() == {site.first: Checkpoint(4)}


def test_a_missing_topic_is_told(site: Site) -> None:
    done = checkpoint("set", site.config(), "--topic", "cdc.nowhere", "--partition", 0, "--offset", 0)
    assert done.returncode == 1
    assert "there is no such topic" in complaint(done)


def test_a_local_file_that_cannot_be_written_is_told(site: Site) -> None:
    (site.folder / "state").write_text("not a folder")
    done = set_to(site, site.config(), "--offset", 2)
    assert done.returncode == 1
    assert "moved in Kafka, but not in the local file" in complaint(done)
    assert site.kafka() == {site.first: Checkpoint(2)}


def test_an_unusable_configuration_is_told_by_its_key(site: Site) -> None:
    done = set_to(site, site.config(initial="earlyest"), "--offset", 2)
    assert done.returncode == 2
    assert "checkpoint.initial" in complaint(done)
