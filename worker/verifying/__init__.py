"""`binlane verify`: compare replicas with their source database."""
