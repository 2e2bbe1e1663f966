"""Folders that are gone when the process has ended, also when it ends itself without Python's own end."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from pathlib import Path

__all__ = ["make_temporary_folder", "remove_temporary_folders"]

_TRIES = 5


class _Folders:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._made: set[Path] = set()
        self._over = False

    def make(self, prefix: str) -> Path:
        with self._lock:
            if self._over:
                raise RuntimeError("the process ends")
            folder = Path(tempfile.mkdtemp(prefix=prefix))
            self._made.add(folder)
            return folder

    def remove(self) -> None:
        with self._lock:
            self._over = True
            for folder in self._made:
                for _ in range(_TRIES):  # another process may be writing there just now
                    shutil.rmtree(folder, ignore_errors=True)
                    if not folder.exists():
                        break
            self._made.clear()


_folders = _Folders()


def make_temporary_folder(prefix: str) -> Path:
    """An empty folder. Whoever is done with it earlier may remove it.

    Raises RuntimeError when the process is about to end.
    """
    return _folders.make(prefix)


@atexit.register
def remove_temporary_folders() -> None:
    """For the end of the process: none is made any more. To be called before `os._exit`."""
    _folders.remove()
