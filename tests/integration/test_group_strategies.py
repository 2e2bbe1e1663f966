"""A worker that its group refuses, because another member assigns partitions in another way."""

from __future__ import annotations

from confluent_kafka import Consumer
from integration.process import eventually
from integration.stage import Stage


def test_a_group_of_another_strategy_is_told_with_its_members(stage: Stage) -> None:
    other = Consumer(
        {
            "bootstrap.servers": stage.bootstrap_servers,
            "group.id": stage.group,
            "client.id": "the-old-consumer",
            "partition.assignment.strategy": "range",
        }
    )
    other.subscribe([stage.topic])
    eventually(lambda: other.poll(0.5) is None and other.assignment(), what="the other has the partitions")
    worker = stage.worker()
    worker.start(ready=False)
    told = eventually(lambda: worker.logged("group_strategies_differ"), what="it is told")[0]["found"]
    assert "this worker offers cooperative-sticky, the group uses range: the-old-consumer at " in told

    def trouble() -> str:
        response = worker.get("/api/live")
        assert response is not None
        return str(response.json()["headline"])

    assert "The group refuses this worker: INCONSISTENT_GROUP_PROTOCOL" in trouble()
    fault = worker.status()["kafka"]["faults"][-1]
    assert "the-old-consumer" in fault["error"]
    assert "group_strategies_differ" in worker.logged("kafka_error")[0]["hint"]
    other.close()
    eventually(lambda: worker.ready, what="the worker has the partitions")
    eventually(lambda: "does not take" not in trouble(), what="the trouble is over")
    assert worker.sigterm() == 0
