"""The command line. Each command lives in `worker.commands` and is imported only when it is called."""

from worker.cli.command_line import app
from worker.cli.process import main

__all__ = ["app", "main"]
