"""A topic that an expression meets, and that has no format, is not read; nothing else stops for it."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
from building import configuration
from structlog.testing import capture_logs

from worker.formats.registry import NO_FORMAT
from worker.running.worker import Worker


def test_nothing_is_fetched_of_a_topic_without_a_format_and_that_is_told(
    mock_servers: str, tmp_path: Path
) -> None:
    settings = configuration(
        kafka={
            "bootstrap_servers": mock_servers,
            "group_id": f"unread-{tmp_path.name}",
            "topics": ["^t$"],
            "properties": {"log_level": 2},
        },
        format={"other": "canal"},
        checkpoint={"directory": str(tmp_path)},
        http=None,
    )
    worker = Worker(settings)
    worker._state = "running"
    parts = worker.components
    parts.kafka.attach(parts.consumer)
    with capture_logs() as logs:
        place = confluent_kafka.TopicPartition("t", 0)
        parts.rebalancer.on_assign(parts.consumer, [place])
    assert [each["topic"] for each in logs if each["event"] == "topic_without_format"] == ["t"]
    [assignment] = parts.assignments.current()
    assert assignment.format is NO_FORMAT
    for _ in range(5):
        parts.receiver.receive(parts.consumer.consume(100, 0.1))
    assert assignment.consumed == 0
    assert assignment.tracker.next_offset is None
    assert worker.status().partitions[0].paused
    assert worker.ready() == "nothing is read: no entry of format: matches t"
    parts.rebalancer.on_revoke(parts.consumer, [place])
    parts.consumer.close()
