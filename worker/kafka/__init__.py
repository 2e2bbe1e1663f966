"""Kafka's client: connection checks, error messages, and repeated requests."""
