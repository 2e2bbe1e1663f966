"""Kafka refuses a member for good: the process ends, since another one is let in."""

from __future__ import annotations

from confluent_kafka import Consumer
from integration.checkers import NothingLost, TableOrder
from integration.process import eventually
from integration.stage import Stage

STATIC = {"group.instance.id": "the-only-one"}


def test_a_worker_whose_fixed_name_another_takes_ends_and_goes_on_when_it_is_started_again(
    stage: Stage,
) -> None:
    source = stage.source()
    source.insert("t0", records=20)
    source.flush()
    worker = stage.worker(properties=STATIC).start()
    stage.wait_committed_to_the_end()

    settings = {"bootstrap.servers": stage.bootstrap_servers, "group.id": stage.group, **STATIC}
    other = Consumer({**settings, "partition.assignment.strategy": "cooperative-sticky"})

    def refused() -> bool:
        other.poll(0.1)
        return "fenced" in worker.log_text()

    try:
        other.subscribe([stage.topic])
        eventually(refused, what="Kafka has refused the worker")
    finally:
        other.close()
    assert worker.wait(15) == 1
    assert any("group.instance.id" in str(line) for line in worker.log_lines() if line["level"] == "error")

    source.insert("t0", records=20)
    source.flush()
    worker.start()
    stage.wait_rows(40)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder())
