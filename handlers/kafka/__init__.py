"""The `kafka` handler: changes to topics chosen per table. `librdkafka` is Kafka's client in words, for
the worker too."""

from handlers.kafka.handler import KafkaHandler

__all__ = ["KafkaHandler"]
