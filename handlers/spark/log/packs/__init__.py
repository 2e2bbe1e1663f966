"""Packs: files with rows of many tables, so that a small batch needs no file of its own."""
