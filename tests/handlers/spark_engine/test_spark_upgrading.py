"""A lake that an earlier release has left, with a statement that waits, is gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from archives import opened_tar
from spark_lake import Lake, MakeLake, change

from handlers import TargetUnavailable

RELEASES = Path(__file__).parents[2] / "data/releases"
MADE = sorted(each.name for each in RELEASES.iterdir() if (each / "left.tar.xz").exists())
PENDING = "lake/_binlane/shop/orders/pending"


def unpack(release: str, folder: Path) -> None:
    with opened_tar(RELEASES / release / "left.tar.xz") as file:
        within = [each for each in file.getmembers() if each.name.startswith("left/lake/")]
        for each in within:
            each.name = each.name.removeprefix("left/")
        file.extractall(folder, within)


def again(lake: Lake) -> None:
    """All that came before, and one more."""
    lake.take(*(change(offset, {"id": offset, "name": f"row {offset}"}) for offset in range(3)), topic_id="A")
    drop = "ALTER TABLE orders DROP COLUMN name"
    lake.take(change(3, None, None, op="ddl", sql=drop), topic_id="A")
    lake.take(*(change(offset, {"id": offset}, {"id": "int"}) for offset in (4, 5)), topic_id="A")


@pytest.mark.parametrize("release", MADE)
def test_what_waits_is_merged_its_statement_followed_and_nothing_twice_or_over_what_a_newer_release_has_put(
    make_lake: MakeLake, tmp_path: Path, release: str
) -> None:
    unpack(release, tmp_path)
    last = tmp_path / PENDING / "_behind" / f"{5:020d}.parquet"
    whole = last.read_bytes()
    newer = whole.replace(b'{"version":1', b'{"version":9').replace(b'{"version":2', b'{"version":9')
    last.write_bytes(newer)  # as when the earlier release is run again
    lake = make_lake(merge={"at_close": "0s"})
    with pytest.raises(TargetUnavailable, match=r"0005\.parquet has version 9 .* run the release that wrote"):
        again(lake)
    assert (last.read_bytes(), lake.rows()) == (newer, [(0, "row 0"), (1, "row 1")])
    last.write_bytes(whole)
    again(lake)
    assert lake.metrics.counts["binlane_handler_passed_over_total", "spark"] == 5
    lake.sink().merge()
    assert lake.rows() == [(0,), (1,), (2,), (4,), (5,)]
