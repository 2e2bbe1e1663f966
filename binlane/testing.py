"""To test handlers without Kafka: batches made from dicts, and files of records played."""

import binlane  # noqa: F401 - puts binlane's own packages first
from handlers.testing import make_batch, opened
from worker.commands.sampling.play import Played, play

__all__ = ["Played", "make_batch", "opened", "play"]
