"""The file: its YAML with lines, its variables, and whether it has changed."""
