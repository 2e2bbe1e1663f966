"""The demo's source: a small shop's tables, rows and changes, and the stream that Canal would send."""
