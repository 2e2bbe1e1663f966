"""Queued and running records: a table's unit of order, its chunks of records, and the batches (`work`) cut
from it."""
