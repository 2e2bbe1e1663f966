"""What a topic holds."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

__all__ = ["messages"]


def messages(servers: str, topic: str) -> list[Message]:
    """All messages, partition by partition, each in its order."""
    settings = {"bootstrap.servers": servers, "group.id": "looking", "enable.auto.commit": False}
    # At the end of a partition it would wait half a second for more.
    consumer = Consumer(settings | {"enable.partition.eof": True, "fetch.wait.max.ms": 10})
    found: list[Message] = []
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ends = 0
        while ends < len(partitions):
            message = consumer.poll(20)
            assert message is not None, f"no answer from Kafka about {topic}"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ends += 1
    finally:
        consumer.close()
    return sorted(found, key=Message.partition)
