"""Records that were taken apart because they hold changes of several tables."""
