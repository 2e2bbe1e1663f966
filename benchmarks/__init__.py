"""What binlane reaches, measured beside its peers: `python -m benchmarks --help`."""
