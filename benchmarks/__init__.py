"""Benchmarks of binlane beside its peers: `python -m benchmarks --help`."""
