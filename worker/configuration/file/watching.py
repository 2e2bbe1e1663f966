"""Whether the configuration file has changed since it was read."""

from __future__ import annotations

import hashlib
from pathlib import Path


class FileWatch:
    """Looks at the file when asked; a change counts when the file has been the same twice in a row.

    So a file that is being written is not read half. The content decides, not the time: Kubernetes swaps a
    link to another folder when a ConfigMap changes, and editors write files anew without changing them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = self._seen = self._digest()

    def changed(self) -> bool:
        """True once for each change; a file that is gone is no change."""
        digest = self._digest()
        settled = digest is not None and digest == self._seen
        self._seen = digest
        if not settled or digest == self._read:
            return False
        self._read = digest
        return True

    def taken(self) -> None:
        """The file is being read for another reason: what it holds now is no change any more."""
        self._read = self._seen = self._digest()

    def _digest(self) -> bytes | None:
        try:
            return hashlib.blake2b(self._path.read_bytes(), digest_size=16).digest()
        except OSError:
            return None
