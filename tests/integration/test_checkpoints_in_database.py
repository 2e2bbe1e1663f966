"""Workers with their checkpoints in a database: they need no folder, and of one identity one works."""

from __future__ import annotations

import uuid
from typing import Any

from integration.checkers import NothingLost, NothingTwice
from integration.process import eventually
from integration.stage import Stage
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer

NOWHERE = "/proc/binlane-state"
"""Nobody can make a folder there, root neither."""


def rule(url: str) -> dict[str, Any]:
    return {"interval": "200ms", "directory": NOWHERE, "url": url, "journal": None}


def test_a_worker_without_a_folder_goes_on_from_its_database(stage: Stage, mariadb: MariaDBServer) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    url = mariadb.new_database(f"checkpoints_{uuid.uuid4().hex[:8]}")
    worker = stage.worker(checkpoint=rule(url)).start()
    stage.wait_committed_to_the_end()
    eventually(lambda: worker.metric("binlane_commits_total", store="sql", result="success"))
    assert worker.metric("binlane_commits_total", store="sql", result="failure") == 0
    worker.kill9()
    source.insert("t0", records=10)
    source.flush()
    worker.start()
    stage.wait_rows(20)
    stage.wait_committed_to_the_end()
    began = [line for line in worker.log_lines() if line["event"] == "partition_assigned"]
    assert any(line["source"] == "sql" and "database" in line["reason"] for line in began)
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice())


def test_a_worker_with_an_identity_that_is_in_use_waits_until_the_other_is_gone(
    stage: Stage, postgres: PostgresServer
) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    checkpoint = rule(postgres.new_database(f"checkpoints_{uuid.uuid4().hex[:8]}"))
    properties = {"group.instance.id": "the-only-one"}
    first = stage.worker(checkpoint=checkpoint, properties=properties).start()
    stage.wait_committed_to_the_end()
    second = stage.worker(checkpoint=checkpoint, properties=properties).start(ready=False)
    eventually(lambda: [line for line in second.log_lines() if line["event"] == "checkpoint_store_away"])
    source.insert("t0", records=10)
    source.flush()
    stage.wait_rows(20)
    stage.wait_committed_to_the_end()
    assert not [line for line in second.log_lines() if line["event"] == "worker_started"]
    first.kill9()
    source.insert("t0", records=10)
    source.flush()
    stage.wait_rows(30)
    stage.wait_committed_to_the_end()
    assert second.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice())
