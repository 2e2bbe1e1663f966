"""Whose a log is, as it is written down beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handlers.spark.log.beside import Owner, owner_of, sign
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.local import LocalFiles

FILES = LocalFiles()
OWNER = Owner("shop", "orders", "replica", "_", "")


def test_a_name_that_a_newer_release_has_signed_is_refused(tmp_path: Path) -> None:
    log = f"{tmp_path}/pending"
    assert sign(FILES, log, OWNER) is None
    written = tmp_path / "table.json"
    assert b"version" not in written.read_bytes()  # as before there was one
    assert owner_of(FILES, log) == sign(FILES, log, OWNER) == OWNER
    written.write_bytes(written.read_bytes().replace(b"}", b',"version":2}'))
    with pytest.raises(BrokenLog, match=r"table\.json has version 2, .* run the release that wrote it"):
        sign(FILES, log, OWNER)
