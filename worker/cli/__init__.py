"""The command line. Each command is a module of `worker.commands`, imported only when it is called."""

from worker.cli.command_line import app
from worker.cli.process import main

__all__ = ["app", "main"]
