"""A topic that is deleted and made anew, one that gets more partitions, a group that begins at the end."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from offsets import metadata
from worker.local.broker import Broker, BrokerError


def make_anew(stage: Stage, broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": stage.bootstrap_servers})
    admin.delete_topics([stage.topic])[stage.topic].result(20)

    def made() -> bool:
        try:
            broker.create_topic(stage.topic, stage.partitions)
        except BrokerError:  # it is not quite gone yet
            return False
        return True

    eventually(made)


def fill(stage: Stage, table: str, records: int) -> list[int]:
    source = stage.source()
    for partition in range(stage.partitions):
        source.insert(table + str(partition), records=records, partition=partition)
    source.flush()
    return list(range(records))


def told_anew(worker: WorkerProcess) -> list[dict[str, Any]]:
    return worker.logged("topic_made_anew")


def test_a_topic_made_anew_while_the_worker_is_stopped_is_read_from_its_beginning(
    stage: Stage, broker: Broker
) -> None:
    """Though `initial` says latest: all that it holds is new. And it is longer than the one before."""
    fill(stage, "old", 10)
    worker = stage.worker(checkpoint={"interval": "200ms", "directory": str(stage.folder / "state")}).start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    make_anew(stage, broker)
    rows = fill(stage, "new", 25)

    worker.config["checkpoint"]["initial"] = "latest"
    worker.start()
    stage.wait_committed_to_the_end()
    assert stage.run.seqs()["shop.new0"] == rows
    (line,) = told_anew(worker)
    assert line["earlier_id"] != line["id"]
    assert (line["read_up_to"], line["level"]) == (10, "error")
    known = metadata.decode(stage.committed_metadata()[0], 25)
    assert known is not None
    assert known.topic_id == line["id"]
    assert worker.sigterm() == 0
    worker.start()
    stage.wait_committed_to_the_end()
    assert told_anew(worker) == []
    assert stage.run.seqs()["shop.new0"] == rows, "nothing comes twice"


@pytest.mark.parametrize(("protocol", "frozen"), [("cooperative-sticky", True), ("range", False)])
def test_a_topic_made_anew_while_the_worker_runs_is_read_from_its_beginning(
    make_stage: MakeStage, broker: Broker, protocol: str, frozen: bool
) -> None:
    """It is noticed by an offset that is not there; or, where the new topic has it before anything of it is
    fetched, by a look at its id."""
    stage = make_stage(partitions=2)
    fill(stage, "old", 10)
    worker = stage.worker(
        checkpoint={"interval": "200ms", "directory": str(stage.folder / "state"), "initial": "earliest"},
        properties={"partition.assignment.strategy": protocol},
    ).start()
    stage.wait_committed_to_the_end()
    assert worker.process is not None
    if frozen:
        worker.process.send_signal(signal.SIGSTOP)
    make_anew(stage, broker)
    rows = fill(stage, "new", 25)
    worker.process.send_signal(signal.SIGCONT)

    def read() -> bool:
        seqs = stage.run.seqs()
        return all(set(rows) <= set(seqs.get(f"shop.new{number}", ())) for number in range(2))

    eventually(read, within=60, what="all of the new topic is read")
    stage.wait_committed_to_the_end()
    lines = told_anew(worker)
    assert {line["partition"] for line in lines} == {f"{stage.topic}[{number}]" for number in range(2)}
    assert len({line["id"] for line in lines}) == 1
    assert worker.healthy()
    assert worker.sigterm() == 0


def test_where_the_group_has_positions_a_partition_added_later_begins_at_its_beginning(
    stage: Stage, broker: Broker
) -> None:
    """`initial: latest` is of the group: what came before the group is passed over, and nothing since."""
    fill(stage, "before", 10)
    worker = stage.worker(
        checkpoint={"interval": "1h", "directory": str(stage.folder / "state"), "initial": "latest"},
        properties={"topic.metadata.refresh.interval.ms": 500},
    ).start()
    eventually(lambda: stage.committed() == {0: 10}, what="the first position is committed at once")
    worker.kill9()
    fill(stage, "since", 5)
    admin = AdminClient({"bootstrap.servers": stage.bootstrap_servers})
    admin.create_partitions([NewPartitions(stage.topic, 3)])[stage.topic].result(20)
    stage.partitions = 3
    source = stage.source()

    def sent() -> bool:
        try:
            for number in (1, 2):
                source.insert(f"added{number}", records=5, partition=number)
        except KafkaException:
            return False
        return True

    eventually(sent)
    source.flush()

    worker.config["checkpoint"]["interval"] = "200ms"
    worker.start()
    stage.wait_rows(15)
    stage.wait_committed_to_the_end()
    assert stage.run.seqs() == {f"shop.{table}": [0, 1, 2, 3, 4] for table in ("since0", "added1", "added2")}
    assert worker.sigterm() == 0
