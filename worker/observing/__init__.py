"""What the worker tells of itself: logs, metrics, and the shape of its status."""
