"""The `files` handler: changes as JSON lines or as Parquet, in files that a loader takes as they appear."""

from handlers.files.handler import FilesHandler

__all__ = ["FilesHandler"]
