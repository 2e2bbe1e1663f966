"""Counts the storage operations of this process, and ends or stops it before one of them."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Points"]

_WRITES = frozenset(
    ("os.link", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.utime", "shutil.rmtree")
)
_READS = frozenset(("os.scandir", "os.listdir"))
_MAKES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _named(path: Any) -> Any:
    """The path of a file in a folder that a worker holds, where the folder is now."""
    found = re.match(r"(/proc/self/fd/\d+)(.*)", path) if isinstance(path, str) else None
    return path if found is None else f"{Path(found[1]).readlink()}{found[2]}"


class Points:
    """What Python and the clients of stores do below a folder or in a bucket, one after the other."""

    def __init__(self, folder: str, at: int, kind: str, *, reads: bool, trace: str, span: int = 1) -> None:
        """`at`: before which operation the process is killed (`kind` KILL) or stopped (STOP), or from which
        one on `span` of them fail (`kind`: the name of their error). 0: none. `reads`: whether these count,
        too. `trace`: the file that gets the name of each."""
        self.is_on = False
        self._folder = folder
        self._at = at
        self._span = span
        self._kind = kind
        self._reads = reads
        self._count = 0
        self._lock = threading.Lock()  # guards the count
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sys.addaudithook(self._heard)
        self._in_clients()

    def reached(self, name: str) -> None:
        if not self.is_on:
            return
        with self._lock:
            self._count += 1
            count = self._count
        os.write(self._trace, f"{count} {name}\n".encode())
        if count == self._at and self._kind in ("KILL", "STOP"):
            os.kill(os.getpid(), signal.Signals[f"SIG{self._kind}"])
        elif self._kind not in ("KILL", "STOP") and 0 < self._at <= count < self._at + self._span:
            number = getattr(errno, self._kind)
            raise OSError(number, os.strerror(number), name)

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.is_on or not given or not isinstance(given[0], str | os.PathLike):
            return
        is_write = event in _WRITES or (event == "open" and bool((given[2] or 0) & _MAKES))
        is_read = event in _READS or (event == "open" and not is_write)
        path = _named(os.fspath(given[0]))
        if str(path).startswith(f"{self._folder}/") and (is_write or (is_read and self._reads)):
            self.reached(f"{event} {str(path).removeprefix(self._folder)}")

    def _in_clients(self) -> None:
        """Those that write or read in code of their own."""
        import obstore
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

        from handlers.spark.log.stores.local import LocalFiles

        written = [
            *((obstore, name) for name in ("put", "delete", "copy")),
            (PyArrowFile, "create"),
            (PyArrowFileIO, "delete"),
            *((LocalFiles, name) for name in ("rename", "move_into")),
            *((SqlCatalog, name) for name in ("commit_table", "create_namespace")),
        ]
        read = [
            *((obstore, name) for name in ("get", "get_range", "head", "list", "list_with_delimiter")),
            (PyArrowFile, "open"),
            (SqlCatalog, "load_table"),
            *((LocalFiles, name) for name in ("open", "exists")),
        ]
        for owner, name in written + read * self._reads:
            setattr(owner, name, self._counted(getattr(owner, name), name, after=name == "commit_table"))

    def _counted(self, do: Callable[..., Any], name: str, *, after: bool) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.reached(name)
            done = do(*given, **named)
            if after:
                self.reached(f"after {name}")
            return done

        return counted
