"""What a real worker's status says of a topic that is not there, and of tables that no rule matches."""

from __future__ import annotations

import msgspec
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import WorkerStatus


def first_line(worker: WorkerProcess) -> tuple[str, str]:
    status = msgspec.convert(worker.status(), WorkerStatus)
    return headline(status, troubles(status))


def test_a_mistyped_topic_is_in_the_first_line(stage: Stage) -> None:
    kafka = {
        "bootstrap_servers": stage.bootstrap_servers,
        "group_id": stage.group,
        "topics": [f"{stage.topic}.mistyped"],
    }
    worker = stage.worker(handlers=[{"type": "log"}], kafka=kafka).start(ready=False)
    eventually(lambda: worker.get("/api/status"))
    told = f"Topic {stage.topic}.mistyped does not exist"
    eventually(lambda: first_line(worker)[1].startswith(told))
    assert first_line(worker)[0] == "bad"


def test_a_match_that_fits_no_table_is_in_the_first_line_with_the_table_and_records(stage: Stage) -> None:
    source = stage.source()
    source.insert("orders", records=5)
    source.flush()
    worker = stage.worker(tables=[{"match": "shop.order", "handlers": [{"type": "log"}]}]).start()
    eventually(lambda: first_line(worker)[1].startswith("No match under tables fits any of the 5 records"))
    level, line = first_line(worker)
    assert level == "bad"
    assert "(shop.orders looks like match: shop.order)" in line
