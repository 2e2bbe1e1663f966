"""Between the fetcher and the processors: bounded lanes, which unit is ready, and whose turn it is."""
