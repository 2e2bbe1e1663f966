"""Kafka Connect's JSON: schemas, and the values that they describe."""
