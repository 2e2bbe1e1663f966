"""Nothing is read because one table takes all room: the page and `binlane status` say so first, and why."""

from __future__ import annotations

import re
from typing import Any

import plain_http
from integration.letters import binlane, judging
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

RECORDS = 6_000
LANES: dict[str, Any] = {"count": 1, "max_records": 1_000, "parked": "100KiB"}
NEVER = {"max_attempts": None, "initial_delay": "100ms", "max_delay": "200ms"}


def first(worker: WorkerProcess) -> dict[str, Any]:
    """The worst problem that the page shows, and `headline`."""
    live = plain_http.get(f"{worker.url}/api/live", timeout=10).json()
    return {"headline": live["headline"], **(live["troubles"][0] if live["troubles"] else {})}


def test_a_retried_table_that_takes_all_room_is_the_first_line_with_its_error(stage: Stage) -> None:
    """Records behind it are parked as far as there is room on disk. Then the lane fills, and another table's
    records wait for room in it."""
    source, gate = stage.source(), stage.gate()
    for _ in range(6):
        source.insert("retry_me", records=RECORDS // 6)
        source.insert("orders", records=10)
    source.flush()
    how: dict[str, Any] = {"reject": {"shop.retry_me": "all"}, "reject_while": str(gate), "how": "error"}
    table = {"match": "*", "handlers": [judging(stage, **how)], "retry": NEVER}
    worker = stage.worker(tables=[table], lanes=LANES, stuck_after="2s").start()
    eventually(lambda: "is retried since" in str(first(worker).get("what")), what="the cause is told")
    told = first(worker)
    assert (told["level"], told["table"]) == ("bad", "shop.retry_me")
    assert re.match(
        r"(Nothing is read because lane 0 is full of shop\.retry_me|\d of \d partitions are not read because "
        r"parked records have no more room on disk: most are of shop\.retry_me)",
        told["headline"],
    )
    assert "is retried since" in told["headline"]
    assert re.search(r"UTC \(.+\), because \S*Error: ", told["headline"])
    eventually(lambda: any(" stuck at offset " in line for line in first(worker)["below"]), what="below it")
    assert any("--table shop.retry_me" in command for command in first(worker)["commands"])
    shown = binlane(worker, "status", str(worker.url))
    assert shown.returncode == 0, shown.stderr
    assert "shop.retry_me" in shown.stdout.splitlines()[1], "the same line"
    opened = plain_http.get(f"{worker.url}/api/table?table=shop.retry_me", timeout=10).json()
    assert opened["why"][0].startswith("it is retried since ")
    [(calls, mean, longest)] = opened["found"]["calls"].values()
    assert calls > 1
    assert 0 < mean <= longest
    gate.unlink()
    eventually(lambda: stage.run.handled() == source.count)
    eventually(lambda: "shop.retry_me" not in first(worker)["headline"], what="it is well again")


def test_a_call_that_holds_its_lane_is_the_cause_of_what_is_not_read(stage: Stage) -> None:
    source, gate = stage.source(), stage.gate()
    source.insert("slow", records=RECORDS)
    source.flush()
    table = {
        "match": "*",
        "handlers": [stage.recording(hold={"shop.slow": str(gate)})],
        "batch": {"max_records": 100},
    }
    worker = stage.worker(tables=[table], lanes=LANES).start()
    eventually(lambda: "Nothing is read" in first(worker)["headline"], within=120, what="it is told")
    told = first(worker)
    assert re.match(
        r"Nothing is read because lane 0 is full of shop\.slow \([\d,]+ of 1,000 records\), which has run",
        told["headline"],
    )
    assert (told["table"], told["lane"], told["runbook"]) == ("shop.slow", 0, "BinlaneAlwaysFull")
    assert worker.metric("binlane_drain_seconds") > 15, "a drain would wait for that call"
    assert worker.metric("binlane_info", group=stage.group, version=worker.status()["version"]) == 1
    gate.unlink()
    eventually(lambda: stage.run.handled() == source.count)
    eventually(lambda: worker.metric("binlane_drain_seconds") < 5)
