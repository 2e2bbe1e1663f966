"""`binlane check --sample`: what becomes of the records of a file."""
