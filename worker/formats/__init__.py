"""Formats of change records, one folder for each. The fetcher gets a route from the bytes (cheap), and the
processors decode them to changes. `interface` is the contract, and `registry` has the names."""
