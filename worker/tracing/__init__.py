"""Spans of records and batches, told to a collector (OpenTelemetry). Imported only where `tracing` is set."""
