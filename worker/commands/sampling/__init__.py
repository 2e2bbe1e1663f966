"""`binlane check --sample`: show how the records of a file are handled."""
