"""The map of finished offsets: files in the checkpoint folder that outlive the process that writes them."""

from offsets.finished.map import FinishedMap, Window
from offsets.finished.reading import Found, covered, read, remove_unnamed

__all__ = ["FinishedMap", "Found", "Window", "covered", "read", "remove_unnamed"]
