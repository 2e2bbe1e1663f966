"""The configured handlers: made, opened, asked for status, changed while the worker runs, closed."""
