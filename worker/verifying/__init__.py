"""Comparing replicas with the database that they are replicas of."""
