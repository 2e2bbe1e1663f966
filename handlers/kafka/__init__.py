"""The `kafka` handler: changes to topics chosen per table. `librdkafka` is Kafka's client in words, for
the worker too, which must not import the handler with it."""
