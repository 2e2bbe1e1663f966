"""Code shared by handlers' options and the configuration: durations, sizes, patterns, templates, and
messages about faults."""
