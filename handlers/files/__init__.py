"""The `files` handler: changes as JSON lines, in files that a loader takes as they are finished."""

from handlers.files.handler import FilesHandler

__all__ = ["FilesHandler"]
