"""What handlers' options and the configuration share: durations, sizes, patterns, templates, and what is
wrong with them in words."""
