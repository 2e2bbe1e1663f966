"""The models of Kafka against librdkafka and Kafka."""
