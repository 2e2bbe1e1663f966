"""Rules shared by targets that store a version with each row (ClickHouse and Elasticsearch)."""
