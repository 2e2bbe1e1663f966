"""The dead-letter topic of a stage, and the commands that look after it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from forked_commands import forked_binlane
from integration.process import WorkerProcess
from integration.stage import Stage
from topic_messages import messages

__all__ = ["binlane", "judging", "letters", "listed", "set_topic", "with_dead_letters"]


def with_dead_letters(stage: Stage, max_ratio: float = 0.5) -> dict[str, Any]:
    """The configuration's section; the topic is not made by it."""
    return {"topic": f"{stage.topic}.dead", "max_ratio": max_ratio}


def judging(stage: Stage, name: str = "judging", **options: Any) -> dict[str, Any]:
    """A configuration entry of the judging handler."""
    return {"type": "judging:Judging", "name": name, "file": str(stage.run.file), **options}


def letters(stage: Stage) -> list[Message]:
    """Everything in the dead-letter topic."""
    return messages(stage.bootstrap_servers, f"{stage.topic}.dead")


def binlane(worker: WorkerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, its configuration's path in the place of CONFIG."""
    config = worker.folder / "binlane.yaml"
    here = Path(__file__).parent
    environment = {"PYTHONPATH": str(here)}
    # By its URL: the port is any, so the configuration does not lead there.
    if arguments[0] in {"unblock", "pause", "resume"}:
        environment["BINLANE_TOKEN"] = worker.order_token
    return forked_binlane(
        [config if each == "CONFIG" else each for each in arguments], here.parents[1], environment
    )


def listed(worker: WorkerProcess) -> list[dict[str, Any]]:
    done = binlane(worker, "dead-letters", "list", "CONFIG", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def set_topic(stage: Stage, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    admin = AdminClient({"bootstrap.servers": stage.bootstrap_servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(20)
