"""What the worker reports about itself: logs, metrics and the structure of its status."""
