"""The `spark` handler beside a Structured Streaming job that does the same."""
