"""A store is asked whether it keeps what was put first, before anything is put there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_lab import MemoryFiles

from handlers.spark.log.stores.interface import Proof, StoreOverwrites


class Overwriting(MemoryFiles):
    """Takes a put's condition, and passes over it."""

    def put(self, path: str, data: bytes) -> None:  # type: ignore[override]
        self.delete(path)
        super().put(path, data)


def proof_of(files: MemoryFiles) -> Callable[[str], None]:
    return Proof(files.put, files.read, files.delete).once


def test_a_store_that_passes_over_the_condition_of_a_put_is_refused() -> None:
    prove = proof_of(Overwriting())
    for _ in range(2):
        with pytest.raises(StoreOverwrites, match="If-None-Match"):
            prove("/lake")


def test_a_store_that_keeps_it_is_asked_once_and_holds_nothing_of_it() -> None:
    files = MemoryFiles()
    prove = proof_of(files)
    for _ in range(2):
        prove("/lake")
    assert len(files.first_put) == 1
    assert not files.list("/lake")
