"""The source's DDL, followed in the target's tables; what is a database's own has a module of its name."""
