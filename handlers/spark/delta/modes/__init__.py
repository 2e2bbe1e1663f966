"""How each mode merges segments: replica, history, changelog, and replicas of tables without a key."""
