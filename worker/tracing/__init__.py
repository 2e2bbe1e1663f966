"""Spans of records and batches, sent to a collector (OpenTelemetry). Imported only if `tracing` is set."""
