"""Formats of change records, one folder for each. The fetcher reads only a record's route from its bytes, and
the processors decode the changes. `interface` has the contract, and `registry` the names."""
