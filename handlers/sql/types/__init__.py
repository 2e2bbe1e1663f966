"""Column types of the target: from source types or from values alone, and how values are fitted to them."""
