"""How each column of a row is read: by its schema, by its MySQL type, or by what the configuration says."""
