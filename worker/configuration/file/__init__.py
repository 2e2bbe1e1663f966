"""The configuration file: its YAML with line numbers, its variables, and whether it has changed."""
