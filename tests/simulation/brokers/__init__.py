"""Kafka: topics, the group, and a consumer that behaves as librdkafka does."""
