"""Puts this folder on the path: what tests of several folders below share is here."""
