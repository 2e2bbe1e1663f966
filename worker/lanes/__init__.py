"""Between the fetcher and the processors: bounded lanes, ready units, and whose turn it is."""
