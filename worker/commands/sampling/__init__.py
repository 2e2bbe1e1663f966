"""The records of a file: shown as they are handled (`binlane check --sample`), or handled in a test."""
