"""A password that a running worker takes over is as secret as the one that it began with."""

from __future__ import annotations

import json
from typing import Any

import httpx
import yaml
from integration.letters import letters
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from worker.local.broker import Broker

FIRST, SECOND, THIRD = "the-first-word", 'sec"ond\nword', "the-third-word"


def tables(password: str, *, opens: bool = True) -> list[dict[str, Any]]:
    handler = {"type": "guarded:Guarded", "password": password, "opens": opens}
    once = {"max_attempts": 1}
    return [
        {"match": "shop.t0", "handlers": [handler], "retry": once},
        {"match": "*", "handlers": [handler], "retry": once, "on_failure": "dead_letter"},
    ]


def rewrite(worker: WorkerProcess, password: str, event: str, *, opens: bool = True) -> None:
    config = {**worker.config, "tables": tables(password, opens=opens)}
    (worker.folder / "binlane.yaml").write_text(yaml.safe_dump(config))
    eventually(lambda: worker.logged(event), what=event)


def unseen(text: str) -> None:
    for part in (FIRST, THIRD, 'sec"ond', 'sec\\"'):
        assert part not in text


def test_a_password_changed_while_it_runs_is_never_shown(stage: Stage, broker: Broker) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    worker = stage.worker(
        tables=tables(FIRST),
        lanes={"count": 2},
        dead_letter={"topic": f"{stage.topic}.dead", "max_ratio": 1.0},
    ).start()
    rewrite(worker, SECOND, "reloaded")
    source = stage.source()
    source.insert("t0", records=1)
    source.insert("t1", records=1)
    source.flush()
    [letter] = eventually(lambda: letters(stage), what="a dead letter")
    eventually(lambda: worker.table("shop.t0").get("state") == "blocked", what="the table is blocked")
    assert dict(letter.headers() or [])["binlane.error"] == b"RuntimeError: denied for ***"
    status = worker.status()
    assert worker.table("shop.t0")["error"].startswith("RuntimeError: denied for *** (")
    assert [each["login"] for each in status["handlers"]] == ["***"] * len(status["handlers"])
    unseen(json.dumps(status))
    page = worker.get("/metrics")
    assert isinstance(page, httpx.Response)
    unseen(page.text)

    # What is refused is told, too.
    rewrite(worker, THIRD, "reload_refused", opens=False)
    [refused] = worker.logged("reload_refused")
    assert "no login with ***" in refused["fault"]
    assert "a thread with ***" in str(worker.logged("unhandled_error")[-1]["exception"])
    unseen(worker.log_text())
