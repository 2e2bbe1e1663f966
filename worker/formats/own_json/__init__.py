"""The format `json`: any JSON, described by a layout in the configuration."""
