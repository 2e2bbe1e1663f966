"""The partitions that the worker owns: where each starts, what is paused and committed, how one is
revoked."""
