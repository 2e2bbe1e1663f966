"""The partitions that the worker owns: where each begins, what is paused, what is committed, how one
leaves."""
