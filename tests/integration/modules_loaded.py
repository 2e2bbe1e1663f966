"""A handler that writes down what its worker has imported."""

from __future__ import annotations

import sys
from pathlib import Path

from binlane import Batch, Handler


class ModulesLoaded(Handler):
    def __init__(self, *, file: str) -> None:
        self._file = Path(file)

    def handle(self, batch: Batch) -> None:
        self._file.write_text("\n".join(sorted(sys.modules)))
