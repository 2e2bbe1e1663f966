"""A test of a transform: records pass the configuration, without Kafka. Run it with `pytest examples`."""

from __future__ import annotations

from pathlib import Path

from cleaning import clean

from binlane import Batch
from binlane.testing import make_batch, play

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "formats" / "samples" / "canal.jsonl"


def test_an_order_has_its_channel_and_no_customer(tmp_path: Path) -> None:
    batches: list[Batch] = []

    played = play(HERE / "transform.yaml", SAMPLE, instead={"sql": batches.append}, folder=tmp_path)

    changes = [change for batch in batches for change in batch.changes]
    rows = {change.after["id"]: change.after for change in changes if change.after}
    assert {number: row["channel"] for number, row in rows.items()} == {
        1000: "web",
        5001: "app",
        5003: "app",
        5004: "web",
    }
    assert all(len(row["customer_id"]) == 64 for row in rows.values()), "a hash"
    assert (played.letters, played.halted) == ([], {})


def test_an_order_may_lose_its_channel() -> None:
    """A row without the column would leave the channel in the target."""
    change = {"before": {"id": 1, "meta": '{"src": "app"}'}, "after": {"id": 1, "meta": None}}
    [update] = make_batch("shop.orders", [change], key="id").changes
    assert clean(update).after == {"id": 1, "meta": None, "channel": None}
