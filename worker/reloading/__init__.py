"""`binlane reload`: one table built again from its topic, while a worker goes on."""
