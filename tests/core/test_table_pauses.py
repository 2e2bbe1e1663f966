"""Pauses: which tables and handlers they stop, how they end, and the file that keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from building import Scripted, chunk, configuration, ddl, record, seen, unit
from building import delivery as delivery_of
from processing import NOW, Stage, raising
from row_building import row_unit
from structlog.testing import capture_logs
from test_stuck_heads import Watch

from handlers import Batch, TargetUnavailable
from handlers.failures import AskAgain
from offsets.stores.interface import CheckpointError
from worker.attempts import table_pauses
from worker.attempts.table_pauses import TablePauses
from worker.lanes.snapshot import TableView, snapshot
from worker.observing.unblock_messages import Answer, PauseRequest
from worker.units.chunk import Barrier, BarrierChunk
from worker.units.unit import Unit

TEXTS = Path(__file__).parents[2] / "tools" / "log_events.yaml"
BEGIN = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


class Folder:
    """Pauses in a folder, with a clock of their own."""

    def __init__(self, folder: Path, look_again: Callable[[], None] = lambda: None) -> None:
        self.now = BEGIN
        settings = configuration(checkpoint={"directory": str(folder)})
        names = ["shop.orders", "shop.items"], {"h0", "h1"}
        self.pauses = TablePauses(settings, lambda: names, look_again, lambda: self.now)

    def ask(self, table: str, action: str = "pause", **more: Any) -> Answer:
        asked = PauseRequest(table=table, action=action, by="ann@laptop", **more)  # type: ignore[arg-type]
        return self.pauses(asked, "127.0.0.1")

    def paused(self, table: str, *handlers: str) -> str | None:
        why = self.pauses.why(table, handlers)
        return None if why is None else str(why)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "state")


@pytest.fixture
def stage(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # What continues was woken, and did not just look again.
    monkeypatch.setattr(table_pauses, "_AGAIN_SECONDS", 60.0)
    made = Stage(2, pauses=folder.pauses)
    folder.pauses._look_again = partial(made.lanes.unblock, pauses=True)
    made.start()
    yield made
    made.stop()


def state(stage: Stage, table: Unit) -> str:
    return view(stage, table).state


def view(stage: Stage, table: Unit) -> TableView:
    return snapshot(stage.lanes.seen, [table], 1_000).tables[0]


@pytest.mark.parametrize("pattern", ["shop.orders", "shop.*", "/shop\\.(orders|items)/"])
def test_a_pause_stops_the_tables_that_match_and_no_others(folder: Folder, pattern: str) -> None:
    assert folder.ask(pattern, reason="a move").result == "paused"
    why = "paused by ann@laptop since 2026-11-28 12:00:00 UTC: a move"
    assert folder.paused("shop.orders", "h0") == folder.paused("shop.orders", "h0", "h1") == why
    assert folder.paused("crm.orders", "h0") is None
    assert folder.paused("shop.orders") is None, "a table without handlers: its records become dead letters"


def test_the_log_always_says_which_client_asked(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    looking: list[threading.Thread] = []

    def look_meanwhile(_: Path) -> None:
        looking.append(threading.Thread(target=folder.pauses.look))
        looking[0].start()
        looking[0].join(0.2)

    monkeypatch.setattr(table_pauses, "flush_directory", look_meanwhile)
    with capture_logs() as logs:
        folder.ask("shop.orders")
        looking[0].join()
    assert [(each["event"], each.get("client")) for each in logs] == [("table_paused", "127.0.0.1")]


def test_what_is_logged_has_the_fields_of_the_documentation(folder: Folder) -> None:
    with capture_logs() as logs:
        folder.ask("shop.orders")
        folder.ask("shop.orders", "resume")
    for each, others in zip(logs, (set(), {"expired"}), strict=True):
        told = yaml.safe_load(TEXTS.read_text())[each["event"]]["fields"].split()
        assert each.keys() - {"event", "log_level"} == {*told, *others}


def test_a_pause_of_a_handler_stops_only_that(folder: Folder) -> None:
    assert folder.ask("shop.orders", handler="h1").result == "paused"
    assert folder.paused("shop.orders", "h1") is not None
    assert folder.paused("shop.orders", "h0") is None
    assert folder.paused("shop.orders", "h0", "h1") is None, "the other may go on"
    assert folder.ask("shop.*", handler="h0").result == "paused"
    assert folder.paused("shop.orders", "h0", "h1") is not None


def test_a_pause_ends_when_its_time_is_over(folder: Folder) -> None:
    answer = folder.ask("shop.orders", duration="1h")
    assert "until 2026-11-28 13:00:00 UTC" in answer.message
    folder.now += timedelta(seconds=3_599)
    assert folder.paused("shop.orders", "h0")
    why = folder.pauses.why("shop.orders", ["h0"])
    assert why is not None
    assert why.wait == 1
    folder.now += timedelta(seconds=1)
    assert folder.paused("shop.orders", "h0") is None
    with capture_logs() as logs:
        folder.pauses.look()
        folder.pauses.look()
    [log] = logs
    assert (log["event"], log["table"], log["expired"]) == ("table_resumed", "shop.orders", True)
    assert folder.pauses.given == []
    assert folder.ask("shop.orders", "resume").result == "refused"


def test_another_pause_of_the_same_tables_replaces_the_first(folder: Folder) -> None:
    folder.ask("shop.orders", duration="1h")
    with capture_logs() as logs:
        folder.ask("shop.orders", reason="longer")
    assert [(log["event"], log["reason"], log["client"]) for log in logs] == [
        ("table_paused", "longer", "127.0.0.1")
    ]
    [pause] = folder.pauses.given
    assert pause.until is None


def test_pauses_survive_a_restart_and_reach_the_other_workers_of_the_folder(tmp_path: Path) -> None:
    first, second = Folder(tmp_path), Folder(tmp_path)
    first.ask("shop.orders", reason="a move", duration="2h")
    first.ask("shop.items", handler="h1")
    second.pauses.look()
    after = Folder(tmp_path)
    with capture_logs() as logs:
        after.pauses.adopt()
    assert [log["event"] for log in logs] == ["table_paused"] * 2
    assert {log["by"] for log in logs} == {"ann@laptop"}
    assert after.pauses.given == second.pauses.given == first.pauses.given
    assert after.paused("shop.orders", "h0") == first.paused("shop.orders", "h0")
    assert second.ask("shop.items", "resume", handler="h1").result == "resumed"
    for each in (first, after):
        each.pauses.look()
        assert [pause.table for pause in each.pauses.given] == ["shop.orders"]


def of_group(group: str, folder: Path) -> TablePauses:
    kafka = {"bootstrap_servers": "localhost:9", "group_id": group, "topics": ["cdc"]}
    settings = configuration(kafka=kafka, checkpoint={"directory": str(folder)})
    return TablePauses(settings, lambda: ([], set()), lambda: None)


def test_another_group_in_the_folder_has_pauses_of_its_own(tmp_path: Path) -> None:
    mine = Folder(tmp_path)
    mine.ask("shop.orders")
    other = of_group("another", tmp_path)
    other.adopt()
    assert other.given == []
    # Two words with one CRC-32.
    assert of_group("plumless", tmp_path).path != of_group("buckeroo", tmp_path).path


_NO_ZONE = b'[{"table": "shop.orders", "by": "ann", "since": "2026-11-28T12:00:00"}]'


@pytest.mark.parametrize("content", [b"", b"[{", b'[{"table": "orders"}]', b"\xff", b"{}", _NO_ZONE])
def test_a_damaged_file_stops_a_start_and_no_running_worker(tmp_path: Path, content: bytes) -> None:
    folder = Folder(tmp_path)
    folder.ask("shop.orders")
    folder.pauses.path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"paused-.*\.json: .*; correct or delete this file of pauses"):
        Folder(tmp_path).pauses.adopt()
    with capture_logs() as logs:
        folder.pauses.look()
    assert logs[0]["event"] == "pauses_unreadable"
    assert folder.paused("shop.orders", "h0"), "what was paused stays paused"
    assert "correct or delete" in folder.ask("shop.items").message
    folder.pauses.path.unlink()
    folder.pauses.look()
    assert folder.paused("shop.orders", "h0") is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"table": "orders"},
            "table: found 'orders'; allowed: a glob on database.table, with both names; nearest: *.orders",
        ),
        ({"table": "/(/"}, "table: found '/(/'; allowed: a regular expression (missing )"),
        ({"table": "shop.orders", "handler": "mirorr"}, "no table has a handler mirorr: there are h0, h1"),
        ({"table": "shop.orders", "duration": "1d"}, "for: found '1d'; allowed: a duration such as 30s"),
        ({"table": "shop.orders", "duration": "0s"}, "for: found '0s'; allowed: a duration such as 30s"),
        ({"table": "shop.orders", "duration": "9" * 30 + "h"}, f"for: found '{'9' * 30}h'; allowed: a dur"),
        ({"table": "shop.orders", "duration": "999999999h"}, "for: found '999999999h'; allowed: a duration"),
        ({"table": "shop.*", "action": "resume"}, "there is no pause of shop.*. Pauses: none"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    folder: Folder, more: dict[str, Any], message: str
) -> None:
    with capture_logs() as logs:
        answer = folder.ask(**more)
    assert (answer.result, message in answer.message) == ("refused", True), answer.message
    assert [(log["event"], log["by"]) for log in logs] == [("pause_refused", "ann@laptop")]
    assert folder.pauses.given == []


def test_a_resume_of_other_tables_names_what_is_paused(folder: Folder) -> None:
    folder.ask("shop.orders", handler="h1")
    answer = folder.ask("shop.orders", "resume")
    assert answer.result == "refused"
    assert answer.message == (
        "there is no pause of shop.orders. Pauses: shop.orders (handler h1) paused by ann@laptop since "
        "2026-11-28 12:00:00 UTC"
    )


@pytest.mark.parametrize("handler", [None, "h1"])
def test_a_resume_says_which_other_pauses_stop_its_tables(folder: Folder, handler: str | None) -> None:
    folder.ask("shop.*", handler=handler)
    folder.ask("/shop.orders/", handler="h0")
    folder.ask("shop.items")
    folder.ask("shop.orders")
    why = "paused by ann@laptop since 2026-11-28 12:00:00 UTC"
    wide = "shop.*" if handler is None else "shop.* (handler h1)"
    found = folder.ask("shop.orders", "resume").message
    left = f"{wide} {why}; /shop.orders/ (handler h0) {why}"
    assert found == f"shop.orders continues, except what another pause stops: {left}"
    last = folder.ask("/shop.orders/", "resume", handler="h0").message
    assert last.endswith("continues") == (handler == "h1")


def test_an_expression_is_matched_once_for_each_table(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some take minutes, and the interpreter stands still meanwhile."""
    matched: list[str] = []
    monkeypatch.setattr(table_pauses, "table_matcher", lambda _: lambda table: bool(matched.append(table)))
    folder.ask("/shop.(a+)+x/")
    matched.clear()
    for _ in range(3):
        assert folder.paused("shop.aaaa", "h0") is None
        assert folder.paused("shop.bbbb", "h0") is None
    assert matched == ["shop.aaaa", "shop.bbbb"]


def test_a_paused_table_stands_alone_and_continues_in_order(stage: Stage, folder: Folder) -> None:
    held, other = Scripted(), Scripted()
    orders, items = unit("orders", held), unit("items", other)
    assert folder.ask("shop.orders").message.endswith("tables that match so far: 1")
    stage.offer((orders, [0, 1, b"not even decoded"]), (items, [3, 4]))
    stage.wait(lambda: other.calls and orders.error)
    stage.offer((orders, [5, 6]), (items, [7]))
    stage.wait(lambda: sum(map(len, seen(other))) == 3)
    assert held.calls == []
    assert state(stage, orders) == "paused"
    assert state(stage, items) == "idle"
    found = snapshot(stage.lanes.seen, [orders, items], 10)
    assert (found.standing.tables, found.standing.records) == (1, 5)
    assert (found.halted, found.target_down) == (0, 0)
    assert view(stage, orders).stands_at() == (stage.partition.partition, 0)
    stage.partition.tracker.finish([2])


def test_a_resume_continues_at_once_and_in_order(stage: Stage, folder: Folder) -> None:
    held = Scripted()
    orders = unit("orders", held)
    folder.ask("shop.*")
    stage.offer((orders, [0, 1]))
    stage.wait(lambda: orders.error)
    stage.offer((orders, [2, 3]))
    assert folder.ask("shop.*", "resume").result == "resumed"
    stage.wait(lambda: orders.at_rest)
    assert [offset for call in seen(held) for offset in call] == [0, 1, 2, 3]
    assert orders.error is None
    assert stage.partition.tracker.unfinished == 0


def test_the_other_handlers_of_a_table_have_the_batch_before_it_stands(stage: Stage, folder: Folder) -> None:
    on, off, alone = Scripted(), Scripted(), Scripted()
    orders, items = unit("orders", on, off), unit("items", alone)
    folder.ask("shop.*", handler="h1")
    stage.offer((orders, [0, 1]), (items, [2]))
    stage.wait(lambda: orders.error and items.at_rest)
    stage.offer((orders, [3]))
    assert (seen(on), seen(off), seen(alone)) == ([[0, 1]], [], [[2]])
    assert orders.error is not None
    assert orders.error.endswith("(handler h1)")
    assert state(stage, orders) == "paused"
    folder.ask("shop.*", "resume", handler="h1")
    stage.wait(lambda: orders.at_rest)
    assert seen(on) == seen(off) == [[0, 1], [3]]


def test_a_table_that_also_waits_for_its_target_is_blocked(stage: Stage, folder: Folder) -> None:
    down = Scripted(raising(TargetUnavailable("no disk", others_go_on=True)))
    orders = unit("orders", down, Scripted(), retry=NOW)
    folder.ask("shop.orders", handler="h1")
    stage.offer((orders, [0]))
    stage.wait(lambda: orders.error)
    assert state(stage, orders) == "blocked"
    assert orders.error is not None
    assert "no disk" in orders.error


def test_a_batch_that_runs_ends_before_the_pause(stage: Stage, folder: Folder) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(batch: Batch) -> None:
        inside.set()
        go_on.wait(10)

    held = Scripted(slow)
    orders = unit("orders", held)
    stage.offer((orders, [0, 1]))
    assert inside.wait(10)
    folder.ask("shop.orders")
    stage.offer((orders, [2]))
    go_on.set()
    stage.wait(lambda: orders.error)
    assert seen(held) == [[0, 1]]
    assert stage.partition.tracker.unfinished == 1


def test_what_a_handler_has_accepted_is_finished_in_a_pause(stage: Stage, folder: Folder) -> None:
    answers: list[BaseException | None] = [AskAgain(0.05), AskAgain(0.05), None]

    def accepts(_: Batch) -> None:
        if len(answers) == 3:
            folder.ask("shop.orders")
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    held = Scripted(accepts)
    orders = unit("orders", held)
    stage.offer((orders, [0, 1]))
    stage.wait(lambda: orders.at_rest)
    assert seen(held) == [[0, 1]] * 3


def test_a_batch_that_is_retried_keeps_its_attempts(stage: Stage, folder: Folder) -> None:
    def fails(batch: Batch) -> None:
        if batch.attempt == 1:
            folder.ask("shop.orders")
            raise ValueError("no")

    held = Scripted(fails)
    orders = unit("orders", held, retry=NOW)
    stage.offer((orders, [0]))
    stage.wait(lambda: state(stage, orders) == "paused")
    folder.ask("shop.orders", "resume")
    stage.wait(lambda: orders.at_rest)
    assert [attempt for attempt, _ in held.calls] == [1, 2]


def test_a_statement_about_a_paused_table_waits_too(stage: Stage, folder: Folder) -> None:
    one, two = Scripted(), Scripted()
    home, other = unit("orders", one), unit("items", two)
    folder.ask("shop.items")
    statement = chunk(stage.partition, [ddl(0)], alone=True)
    statement.barrier = Barrier(home, (other,))
    place = BarrierChunk(statement, statement.barrier)
    assert stage.lanes.offer(delivery_of((home, statement), (other, place)))
    stage.wait(lambda: home.error)
    assert one.calls == two.calls == []
    folder.ask("shop.items", "resume")
    stage.wait(lambda: home.at_rest and other.at_rest)
    assert seen(one) == [[0]]


def test_rows_of_a_paused_table_are_not_distributed(stage: Stage, folder: Folder) -> None:
    held = Scripted()
    table = row_unit("orders", held)
    folder.ask(table.table.label)
    stage.offer((table, [0, 1, 2]))
    stage.wait(lambda: table.error)
    assert table.shards is not None
    assert not table.shards.units
    assert state(stage, table) == "paused"
    folder.ask(table.table.label, "resume")
    stage.wait(lambda: table.at_rest)
    assert stage.partition.tracker.unfinished == 0


def test_a_paused_record_is_known_after_five_minutes_however_long_others_are(
    stage: Stage, folder: Folder
) -> None:
    """Alerts wait 10 minutes and more, and leave it out."""
    go_on = threading.Event()
    held = Scripted(lambda _: go_on.wait(10))
    orders = unit("orders", held)
    folder.ask("shop.orders")
    stage.offer((orders, [0, 1]))
    stage.wait(lambda: orders.error)
    watch = Watch(stage, orders)
    watch.heads.after = 3_600.0
    assert watch.wait(299) == []
    assert watch.heads.of(stage.partition) is None
    assert watch.wait(5) == []
    assert watch.told().state == "paused"
    folder.ask("shop.orders", "resume")
    stage.wait(lambda: held.calls)
    assert watch.wait(5) == []
    assert watch.heads.of(stage.partition) is None, "it is not stuck yet"
    go_on.set()


def test_the_first_record_of_a_paused_table_is_not_reported_as_stuck(stage: Stage, folder: Folder) -> None:
    orders = unit("orders")
    folder.ask("shop.orders")
    stage.offer((orders, [0, 1]))
    stage.wait(lambda: orders.error)
    watch = Watch(stage, orders)
    assert watch.wait(61) == []
    assert watch.told().state == "paused"
    assert record(0).offset() == watch.told().offset
