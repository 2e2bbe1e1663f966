"""Targets, a module for each kind: a handler that is open for many examples, and what its tables hold."""
