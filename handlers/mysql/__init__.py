"""MySQL's types, values and DDL, read once for all: formats and handlers share them."""
