"""`binlane status` in a terminal: once, or as a live view."""
