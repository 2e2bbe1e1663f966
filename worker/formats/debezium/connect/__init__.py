"""Kafka Connect's JSON: schemas and the values they describe."""
