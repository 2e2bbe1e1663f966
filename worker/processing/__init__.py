"""The threads that run batches: they decode a batch, call its table's handlers, and deal with failures."""
