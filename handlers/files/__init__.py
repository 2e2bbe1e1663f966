"""The `files` handler: writes changes as JSON lines or Parquet, in files for loaders to pick up."""

from handlers.files.handler import FilesHandler

__all__ = ["FilesHandler"]
