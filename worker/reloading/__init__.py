"""`binlane reload`: rebuild one table from its topic, while a worker continues."""
