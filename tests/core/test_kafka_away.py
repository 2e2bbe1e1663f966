"""While Kafka is away in a rebalance the fetcher waits for it: alive, and ready to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import KafkaException

from worker.kafka.errors import Stopping, until_answered
from worker.local.broker_settings import free_port
from worker.running.components import Components


def test_a_question_is_asked_until_kafka_answers_and_each_time_the_thread_shows_that_it_lives() -> None:
    answers = iter([KafkaException("away"), KafkaException("away"), 42])
    beats: list[int] = []

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    class Hurried(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(0)

    assert until_answered(ask, alive=lambda: beats.append(1), stopping=Hurried()) == 42
    assert len(beats) == 3


def test_nobody_asks_any_more_when_the_worker_stops() -> None:
    stopping = threading.Event()

    def ask() -> int:
        stopping.set()
        raise KafkaException("away")

    with pytest.raises(Stopping):
        until_answered(ask, alive=lambda: None, stopping=stopping)


def test_a_worker_that_waits_for_kafka_is_alive_and_stops_when_it_is_told(
    tmp_path: Path,
) -> None:
    clock, stop = Clock(), threading.Event()
    faults: list[BaseException] = []
    settings = configuration(
        kafka={"bootstrap_servers": f"127.0.0.1:{free_port()}", "group_id": "g", "topics": ["cdc.shop"]},
        checkpoint={"directory": str(tmp_path)},
    )
    components = Components(settings, clock=clock, fail=faults.append, stop=stop)
    components.kafka._deadline = 0.2

    def rebalance() -> None:
        components.kafka.attach(components.consumer)
        try:
            components.rebalancer.on_assign(
                components.consumer, [confluent_kafka.TopicPartition("cdc.shop", 0)]
            )
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=rebalance)
    thread.start()
    try:
        for _ in range(2):  # as long as a broker may be away
            clock.now += 100
            deadline = time.monotonic() + 60
            while components.fetcher.beat < clock.now and time.monotonic() < deadline:
                time.sleep(0.01)
            assert components.fetcher.beat >= clock.now
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert not faults
    assert components.assignments.current() == []
    components.consumer.close()
