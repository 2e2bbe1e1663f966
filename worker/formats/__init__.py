"""Formats of change records, a folder each: from bytes to a route (cheap, all that the fetcher needs) and
to changes (full, by the processors). `interface` is the contract, `registry` has the names."""
