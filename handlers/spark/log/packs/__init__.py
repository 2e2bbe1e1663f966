"""Packs: files that hold rows of many tables, so that a batch of few rows needs no file of its own."""
