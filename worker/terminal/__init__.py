"""`binlane status` in a terminal: once, and as a live view."""
