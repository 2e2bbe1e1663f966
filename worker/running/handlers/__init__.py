"""The configured handlers: made, opened, asked, changed while the worker runs, closed."""
