"""Tables that their target does not take: they wait and say so, and nothing else does."""

from __future__ import annotations

from integration.process import eventually
from integration.stage import Stage
from integration.test_unblock_runs import unblock


def test_a_table_whose_place_is_taken_waits_alone_and_goes_on_when_it_is_mended(stage: Stage) -> None:
    files = stage.folder / "files"
    (files / "shop").mkdir(parents=True)
    (files / "shop" / "t0").write_text("no folder")
    handler = {"type": "files", "directory": str(files)}
    table = {"match": "shop.*", "handlers": [handler], "on_failure": "skip"}
    source = stage.source()
    for name in ("t0", "t1"):
        source.insert(name, records=5)
    source.flush()
    worker = stage.worker(tables=[table], lanes={"count": 1}, batch={"max_records": 1}).start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    eventually(lambda: worker.table("shop.t1").get("finished_records") == 5)
    [told] = worker.logged("table_waits")
    assert (told["table"], told["handler"]) == ("shop.t0", "files")
    assert "Not a directory" in told["error"]
    assert worker.metric("binlane_tables_blocked") == 1
    assert worker.healthy()
    done = unblock(worker, 0, "--skip")
    assert done.returncode == 0, done.stderr
    assert worker.sigterm() == 0, "it waits, and stops all the same"
    worker.start()
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked")
    (files / "shop" / "t0").unlink()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    lines = [line for path in (files / "shop" / "t0").iterdir() for line in path.read_text().splitlines()]
    assert len(lines) == 4
