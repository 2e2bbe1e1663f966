"""Processors on real lanes whose handlers run in real child processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from building import configuration
from processing import Stage

from worker.configuration import Configuration
from worker.configuration.table_rules import OnFailure
from worker.dead_letters.writing import DeadLetters
from worker.processes.processes import Processes
from worker.running.handler_set import HandlerSet
from worker.units.table import Table
from worker.units.unit import Unit

__all__ = ["ProcessStage"]


class ProcessStage(Stage):
    """`rules` are all of table rules; their handlers write to `file`. With `processes=0`, they are here."""

    patience = 90.0  # a process starts in a second, and in many if the machine is busy

    def __init__(
        self,
        folder: Path,
        *rules: dict[str, Any],
        processes: int = 2,
        lanes: int = 2,
        on_undecodable: OnFailure = "halt",
        letters: DeadLetters | None = None,
        **sections: Any,
    ) -> None:
        super().__init__(lanes, on_undecodable=on_undecodable, letters=letters)
        self.file = folder / "events.jsonl"
        self.file.touch()
        self.configuration = self.configured(
            *rules,
            lanes={"processes": processes, "count": lanes},
            on_undecodable=on_undecodable,
            **sections,
        )
        self.processes = Processes(
            self.configuration,
            metrics=self.metrics.handlers,
            fail=self.errors.append,
            rebuilt=lambda: None,
            trusted_until=lambda: self.lanes.trusted_until,
            ready=self.lanes.unblock,
            ended=lambda: self.metrics.count("binlane_lane_processes_ended_total"),
        )
        self.handlers = HandlerSet(
            self.configuration,
            metrics=self.metrics.handlers,
            fail=self.errors.append,
            processes=self.processes if processes else None,
        )
        self.handlers.open()

    def configured(self, *rules: dict[str, Any], **sections: Any) -> Configuration:
        return configuration(*rules, **sections).read_from(Path(__file__), self_secrets())

    def unit(self, name: str) -> Unit:
        rule = self.handlers.configuration.rule_for(f"shop.{name}")
        assert rule is not None
        return Unit(Table("shop", name, rule, self.handlers.of(rule)), 0)

    def events(self, event: str = "handle", **fields: Any) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [
            line
            for line in lines
            if line["event"] == event and all(line[key] == value for key, value in fields.items())
        ]

    def ids(self, table: str) -> list[list[int]]:
        """Of each call."""
        return [line["ids"] for line in self.events(table=f"shop.{table}")]

    def pids(self) -> list[int]:
        return [slot.present.pid for slot in self.processes._slots if slot.present is not None]

    def kill(self, pid: int) -> None:
        """End a process, and wait for the next one."""
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda: pid not in self.pids() and len(self.pids()) == len(self.processes._slots))

    def close(self) -> None:
        self.end()
        assert self.handlers.close()


def self_secrets() -> Any:
    from worker.configuration.secrets import Secrets

    return Secrets()
