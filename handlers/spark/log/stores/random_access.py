"""A remote file as a Python file, for reading at any place."""

from __future__ import annotations

import io
from collections.abc import Callable


class RandomAccess(io.RawIOBase):
    """Reads only the requested bytes. For `pyarrow.PythonFile`."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes]) -> None:
        """`size`: of the file, in bytes. `read_at`: returns the bytes from an offset on. Their number is
        never 0, and they never go beyond the end."""
        super().__init__()
        self._size = size
        self._read_at = read_at
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._at, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        found = self._read_at(self._at, wanted) if wanted else b""
        self._at += len(found)
        return found
