"""What is queued and runs: a table's unit of order, the chunks of records in it, the batches (`work`) cut
from it."""
