"""The target's column types: for a type that the source told, for values alone, and how values fit them."""
