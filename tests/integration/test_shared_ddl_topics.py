"""A second member beside a worker that merges topics: both say so, neither reads, and the first goes on."""

from __future__ import annotations

from integration.conftest import MakeStage
from integration.process import eventually

from worker.local.broker import Broker


def test_two_members_that_merge_topics_read_nothing_until_one_of_them_is_gone(
    make_stage: MakeStage, broker: Broker
) -> None:
    stage = make_stage()
    ddl = broker.create_topic(f"{stage.topic}.ddl")
    first, second = (stage.worker(name, format="debezium") for name in ("first", "second"))
    for worker in (first, second):
        worker.config["kafka"]["ddl_topics"] = [ddl]
    first.start()
    second.start(ready=False)
    for worker in (first, second):
        eventually(lambda: worker.logged("topics_shared"), what="it says what is wrong")  # noqa: B023
        assert worker.healthy()
    answer = first.get("/readyz")
    assert answer is not None
    assert answer.status_code == 503
    assert "one worker must have all 2 partitions" in answer.text
    assert all(partition["paused"] for partition in first.status()["partitions"])

    assert second.sigterm() == 0
    eventually(first.ready, what="it has all partitions again")
    eventually(
        lambda: not any(partition["paused"] for partition in first.status()["partitions"]),
        what="it reads them when Kafka has taken their first commit",
    )
    assert first.sigterm() == 0
