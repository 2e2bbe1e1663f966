"""Kafka's client: whether it can be reached, its errors in words, questions asked again."""
