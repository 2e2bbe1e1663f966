"""Records that were split because they contain changes of several tables."""
