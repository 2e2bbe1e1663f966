"""The threads that run batches: decoded, handed to their table's handlers, and what is done about what
fails."""
