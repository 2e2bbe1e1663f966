"""Two handlers, or two source tables, that are led to one place; and handlers that read what others wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from integration.process import eventually
from spark_lake import Lake, MakeLake, change

from handlers import Rejected, TargetUnavailable

LOG = "lake/_binlane/shop/orders"


def put(lake: Lake, offset: int = 1, table: str = "shop.orders") -> None:
    lake.take(change(offset, {"id": offset, "name": "a"}), table=table)


def leave(lake: Lake) -> None:
    """As a worker that is killed: what waits is not merged."""
    merger = lake.handler._open._merger  # type: ignore[union-attr]
    merger._options = merger._options.model_copy(update={"at_close": 0.0})
    lake.close()


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_segments_of_another_log_do_not_pass_for_merged(make_lake: MakeLake, ahead: int, engine: str) -> None:
    """As when a second group begins with another path of the same table: it has logs of its own."""
    lake = make_lake(merge={"engine": engine})
    other = make_lake(path="lake/shop/{table}", merge={"engine": engine})
    put(lake, 2)
    for number in range(1 + ahead):
        put(other, 101 + number)
        other.merge()
    before = lake.rows()
    for _ in range(2):
        with pytest.raises(Exception, match=r"has segment \d of another log than .*two warehouses or paths"):
            lake.sink().merge()
    lake.crash()
    with pytest.raises(TargetUnavailable, match=r"has segment \d of another log"):
        put(lake, 3)
    put(other, 200)
    other.merge()
    assert lake.rows() == [*before, (200, "a")]


def forget_owner(lake: Lake) -> None:
    """`table.json` as an earlier release wrote it."""
    path = lake.folder / LOG / "table.json"
    told = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({key: told[key] for key in ("database", "table", "mode")}))


def test_a_second_handler_of_a_table_in_the_same_place_is_refused_and_the_first_goes_on(
    make_lake: MakeLake,
) -> None:
    replica, changes = make_lake(), make_lake(mode="changelog")
    put(replica)
    with pytest.raises(Rejected) as told:
        put(changes)
    for part in (
        f"{replica.folder}/{LOG}/table.json says that this is the place of the replica of shop.orders",
        "it cannot be that of the changelog of shop.orders",
        "Give one of them its own place",
    ):
        assert part in str(told.value)
    put(replica, 2)
    assert replica.status()["waiting_rows"] == 2


@pytest.mark.parametrize("options", [{}, {"mode": "changelog", "format": "parquet"}])
def test_tables_of_one_name_in_two_databases_cannot_share_a_place(
    make_lake: MakeLake, options: dict[str, Any]
) -> None:
    lake = make_lake(path="lake/{table}", **options)
    put(lake, 1, "shop.orders")
    with pytest.raises(Rejected, match=r"of shop\.orders; it cannot be that of the \w+ of archive\.orders"):
        put(lake, 2, "archive.orders")
    put(lake, 3, "shop.orders")
    lake.merge()
    put(lake, 4, "shop.orders")


def test_a_parquet_changelog_puts_nothing_among_files_of_others(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog", format="parquet")
    folder = lake.folder / "lake/shop/orders"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"")
    with pytest.raises(Exception, match="is not a segment: move it away"):
        put(lake)
    assert [each.name for each in folder.iterdir()] == ["part-0.parquet"]


@pytest.mark.parametrize(
    "is_old",
    [
        pytest.param(False, id="signed"),
        pytest.param(True, id="signed by an earlier release", marks=pytest.mark.soak),
    ],
)
def test_a_log_that_was_written_with_another_prefix_is_refused_and_read_with_its_own(
    make_lake: MakeLake, is_old: bool
) -> None:
    first = make_lake(prefix="bl_")
    put(first)
    leave(first)
    if is_old:
        forget_owner(first)

    other = make_lake()
    with pytest.raises(Rejected, match=r"prefix.+[Ss]et .*back, or remove the table with its log"):
        put(other, 2)
    other.close()

    first.open()
    eventually(lambda: first.status().get("waiting_rows") == 1, what="its own handler finds it")
    put(first, 2)
    assert first.view("id") == [(1,), (2,)]


def test_what_was_left_is_taken_by_the_handler_that_wrote_it_though_another_is_opened_first(
    make_lake: MakeLake,
) -> None:
    lake = make_lake(prefix="bl_")
    put(lake)
    leave(lake)

    other = make_lake(merge={"max_age": "0s"})
    other.handler._open._search.round()  # type: ignore[union-attr]
    assert other.status() == {}
    lake.open()
    eventually(lambda: lake.status().get("waiting_rows") == 1)
    assert not (lake.folder / "lake/shop/orders").exists()


def test_a_log_of_an_earlier_release_goes_on(make_lake: MakeLake) -> None:
    lake = make_lake()
    put(lake)
    forget_owner(lake)
    lake.crash()
    eventually(lambda: lake.status().get("waiting_rows") == 1)
    put(lake, 2)
    lake.merge()
    assert lake.rows("id") == [(1,), (2,)]
