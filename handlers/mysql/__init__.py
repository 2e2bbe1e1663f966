"""MySQL's types, as text and as values."""
