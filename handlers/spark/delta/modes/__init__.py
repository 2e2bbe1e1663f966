"""What each mode makes of segments: replica, history, changelog, and replicas of tables without a key."""
