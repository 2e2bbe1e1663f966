"""A checkpoint file that is damaged, gone, or of a newer version."""

from __future__ import annotations

import json

import pytest
from file_stores import AHEAD, SHOP, STOCK, reopened
from memory_store import loaded
from structlog.testing import capture_logs

from offsets.stores.file import FileStore
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint


def test_every_changed_bit_gives_way_to_the_previous_copy(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.save({SHOP: Checkpoint(2, AHEAD)})
    sound = store.path.read_bytes()
    version = sound.index(b":") + 1
    for place in range(len(sound)):
        for bit in (0, 3, 6):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            store.path.write_bytes(damaged)
            found = reopened(store)
            if place == version and damaged[version : version + 1].isdigit():
                with pytest.raises(CheckpointError, match="newer binlane"):
                    loaded(found, [SHOP])
            else:
                assert loaded(found, [SHOP]) == {SHOP: Checkpoint(1)}, f"bit {bit} of byte {place}"
                assert len(found.warnings) == 1


@pytest.mark.parametrize("keep", [0, 1, 50, -1])
def test_a_torn_file_gives_way_to_the_previous_copy_loudly(store: FileStore, keep: int) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.save({SHOP: Checkpoint(2)})
    store.path.write_bytes(store.path.read_bytes()[:keep])
    found = reopened(store)
    with capture_logs() as logs:
        assert loaded(found, [SHOP]) == {SHOP: Checkpoint(1)}
        loaded(found, [SHOP])
    assert [(each["event"], each["log_level"]) for each in logs] == [("checkpoint_file_damaged", "error")]
    assert "used the previous copy" in found.warnings[0]
    assert str(store.path) in found.warnings[0]


def test_without_a_sound_copy_the_file_counts_as_absent_loudly(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.save({SHOP: Checkpoint(2)})
    store.path.write_text("not a checkpoint")
    store.previous.write_text("neither")
    found = reopened(store)
    with capture_logs() as logs:
        assert loaded(found, [SHOP]) == {}
    assert logs[0]["log_level"] == "error"
    assert "Kafka's committed offsets decide" in found.warnings[0]


def test_a_damaged_file_neither_becomes_the_previous_copy_nor_is_lost(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.save({SHOP: Checkpoint(2)})
    sound_copy = store.previous.read_bytes()
    store.path.write_text("damaged")
    found = reopened(store)
    found.save({STOCK: Checkpoint(5)})
    assert store.previous.read_bytes() == sound_copy
    assert (store.path.parent / "checkpoint.json.damaged").read_text() == "damaged"
    assert loaded(reopened(store), [SHOP, STOCK]) == {SHOP: Checkpoint(1), STOCK: Checkpoint(5)}


def test_a_file_that_somebody_removed_counts_as_absent(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    store.save({SHOP: Checkpoint(2)})
    store.path.unlink()
    assert loaded(store, [SHOP]) == {}
    assert store.warnings == ()


def test_a_file_of_a_newer_version_is_refused_and_left_alone(store: FileStore) -> None:
    store.save({SHOP: Checkpoint(1)})
    line, body = store.path.read_bytes().split(b"\n", 1)
    header = json.loads(line)
    header["binlane_checkpoint"] += 1
    newer = json.dumps(header).encode() + b"\n" + body
    store.path.write_bytes(newer)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json was written by a newer binlane"):
        loaded(reopened(store), [SHOP])
    with pytest.raises(CheckpointError, match="newer binlane"):
        reopened(store).save({SHOP: Checkpoint(3)})
    assert store.path.read_bytes() == newer
