"""The format `json`: JSON of the user's own, by a layout in the configuration."""
