"""Targets that keep each row with a version: the rules that ClickHouse and Elasticsearch share."""
