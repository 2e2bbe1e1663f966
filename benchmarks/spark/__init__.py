"""Benchmarks of the `spark` handler beside a Structured Streaming job for the same task."""
