"""`binlane verify`: replicas compared with the database that they are replicas of."""
