"""What happens in a run, drawn from its seed: the worker's configuration, the records, the faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from worker.configuration import Configuration

from .children.plan import CHILD_FAULTS, Children

__all__ = ["STANDING", "TOPIC", "Event", "Plan"]

TOPIC = "cdc"
STANDING = "shop.t0"
"""The table that stands still, if one does."""

_FAULTS = {
    "kill": (0.0, 3.0),
    "restart": (0.0, 1.0),
    "freeze": (0.5, 15.0),
    "replace": (0.0, 1.0),
    "reload": (0.0, 1.0),
    "power": (0.0, 8.0),
    "torn": (0.0, 3.0),
    "old_files": (0.5, 5.0),
    "no_files": (0.0, 3.0),
    "full": (1.0, 8.0),
    "away": (0.5, 12.0),
    "commits": (1.0, 8.0),
    "slow": (1.0, 6.0),
    "unheard": (1.0, 15.0),
    "cut_off": (1.0, 15.0),
    "expire": (0.0, 1.0),
    "grow": (0.0, 2.0),
    "remake": (0.0, 1.0),
    "rewind": (0.0, 1.0),
}
"""Each is a method of `faults.Faults`, with the least and the most seconds that it takes."""
_USURPED = (8.0, 12.0)
"""The same of `usurped`, which is drawn by itself: the other faults of a seed stay as they are."""

_CHILDREN = 0.3
"""How often a worker has child processes. Drawn by itself, too."""
_PAUSED = 0.2
"""How often a table is paused. This is drawn by itself, too."""


@dataclass(frozen=True, slots=True)
class Event:
    """`what` happens at second `at` of the run, with `who` (a worker's number) and `seconds`."""

    at: float
    what: str
    who: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Plan:
    seed: int
    workers: int
    partitions: int
    tables: int
    records: int
    seconds: float
    """In which the records are written and the faults happen."""
    holes: float
    """How often an offset holds nothing: a marker, or what compaction took."""
    handle_seconds: float
    failing: float
    unavailable: float
    hanging: float
    late: float
    poison: float
    """How often a record is one that handlers refuse."""
    broken: float
    """How often a record is none that can be decoded."""
    shared_folder: bool
    settings: dict[str, Any]
    on_failure: str
    segment_bytes: int
    """Of the map of finished offsets."""
    switch: float
    delay: float
    stands: str = ""
    """How one table stands still when all else is well: retried, blocked or halted. Empty: none does."""
    paused: bool = False
    """Somebody pauses that table, and resumes it when all others are at their end."""
    children: Children | None = None
    """None: handlers run in the worker's threads."""
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> Plan:
        random, other = Random(f"plan {seed}"), Random(f"records {seed}")
        workers = random.choice((1, 1, 1, 2, 2, 3))
        seconds = random.uniform(3, 12)
        cooperative = random.random() < 0.7
        plan = cls(
            seed=seed,
            workers=workers,
            partitions=random.choice((1, 2, 3, 4)),
            tables=random.choice((1, 2, 4, 9)),
            records=random.choice((20, 60, 150, 300)),
            seconds=seconds,
            holes=random.choice((0, 0, 0.3)),
            handle_seconds=random.choice((0.0, 0.005, 0.05, 0.4)),
            failing=random.choice((0, 0, 0.1)),
            unavailable=random.choice((0, 0, 0.1)),
            hanging=random.choice((0, 0, 0.02)),
            late=random.choice((0, 0.02)),
            poison=other.choice((0, 0, 0, 0.05)),
            broken=other.choice((0, 0, 0, 0.05)),
            shared_folder=random.random() < 0.3,
            settings={
                "kafka": {
                    "bootstrap_servers": "simulated:9092",
                    "group_id": "group",
                    "topics": [TOPIC],
                    "properties": {
                        "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range",
                        "session.timeout.ms": 6000,
                    },
                },
                "lanes": {
                    "count": random.choice((1, 2, 3)),
                    "max_records": random.choice((5, 30, 1000)),
                    "max_bytes": random.choice((2_000, 1_000_000)),
                    "work_stealing": random.random() < 0.8,
                    "order_by": random.choice(("table", "table", "row")),
                },
                "batch": {
                    "max_records": random.choice((1, 7, 100)),
                    "max_wait": random.choice((0, 0, 300)),
                },
                "checkpoint": {
                    "interval": random.choice((200, 1000, 4000)),
                    "journal": random.choice(({}, {"flush": "0s"}, {"flush": None, "max_bytes": 8192})),
                },
                "shutdown_timeout": 20_000,
                "revoke_timeout": random.choice((200, 3000)),
                "max_ahead": other.choice((10, 1_000_000, 1_000_000)),
                "on_undecodable": "skip",
            },
            on_failure=other.choice(("skip", "halt")),
            segment_bytes=random.choice((1024, 4096, 65_536)),
            switch=random.choice((0.02, 0.15, 0.5)),
            delay=random.choice((0.0, 0.002, 0.01)),
        )
        if seed % 4 == 0 and plan.settings["lanes"]["order_by"] == "table":
            plan.settings["batch"]["transactions"] = "whole"
        if plan.poison:
            plan.failing = 0  # else what is good would be passed over, too
        events = plan._faults(random)
        plan._stand(Random(f"standing {seed}"))
        if other.random() < 0.1:
            at, who = other.uniform(0, plan.seconds), other.randrange(plan.workers)
            events.append(Event(at, "usurped", who, other.uniform(*_USURPED)))
        pauses = Random(f"pauses {seed}")
        if pauses.random() < _PAUSED:
            plan.paused = True
            plan.settings["lanes"].setdefault("parked", 1 << 30)
            events.append(Event(pauses.uniform(0, plan.seconds), "pause"))
        plan.events = sorted(events, key=lambda event: event.at)
        random = Random(f"processes {seed}")
        if random.random() < _CHILDREN:
            plan._run_children(random)
        return plan

    @classmethod
    def with_children(cls, seed: int) -> Plan:
        """As the seed's plan, with child processes in any case."""
        plan = cls.of(seed)
        if plan.children is None:
            plan._run_children(Random(f"processes {seed}"))
        return plan

    def _run_children(self, random: Random) -> None:
        self.children = Children.drawn(random, may_fail=not self.poison)
        self.settings["lanes"]["processes"] = self.children.count
        self.events += [
            Event(
                random.uniform(0, self.seconds),
                kind,
                random.randrange(self.workers),
                random.uniform(*CHILD_FAULTS[kind]),
            )
            for kind in self.children.faults
        ]
        self.events.sort(key=lambda event: event.at)

    def _stand(self, random: Random) -> None:
        """One of six runs has a table that stands still. Of them, one of three has full parking files."""
        if self.tables == 1 or random.random() > 1 / 6:
            return
        if self.halts:
            self.stands = "halted"
        else:  # what is refused is passed over, so nothing else may fail
            self.stands = "blocked" if self.poison else random.choice(("retried", "blocked"))
        self.settings["lanes"]["parked"] = random.choice((2_000, 1 << 30, 1 << 30))

    @property
    def others_end(self) -> bool:
        """Whether no other table may wait for the one that stands still: its partition is near no bound."""
        lanes = self.settings["lanes"]
        return min(self.settings["max_ahead"], lanes["parked"], lanes["max_bytes"]) > 100_000

    @property
    def halts(self) -> bool:
        """Tables may halt, until their cause is mended and their workers are started anew."""
        return bool(self.poison) and self.on_failure == "halt"

    @property
    def limit(self) -> dict[str, int] | None:
        """Of the handler. Drawn by itself: all else of a seed stays as it is."""
        both = {"calls": 2, "rows_per_second": 200}
        return Random(f"limit {self.seed}").choice((None, None, {"calls": 1}, {"rows_per_second": 100}, both))

    def folder(self, number: int) -> str:
        """Of a worker's checkpoint file."""
        return "/state" if self.shared_folder else f"/state-{number}"

    def configuration(self, *, lanes: int | None = None, handler: str = "log") -> Configuration:
        """`lanes`: another number of them. `handler`: the name of the tables' handler."""
        settings = dict(self.settings)
        if lanes is not None:
            settings["lanes"] = {**settings["lanes"], "count": lanes}
        for section, key in (("batch", "max_wait"), ("checkpoint", "interval")):
            settings[section] = {**settings[section], key: f"{settings[section][key]}ms"}
        for key in ("shutdown_timeout", "revoke_timeout"):
            settings[key] = f"{settings[key]}ms"
        most = 2 if self.poison else None
        retry = {"max_attempts": most, "initial_delay": "50ms", "max_delay": "2s"}
        entry: dict[str, Any] = {"type": "log"} if handler == "log" else {"type": "log", "name": handler}
        table = {
            "match": "*",
            "handlers": [entry if self.limit is None else {**entry, "limit": self.limit}],
            "retry": retry,
            "on_failure": self.on_failure,
        }
        tables = [table]
        if self.stands == "retried":
            slow = {**retry, "initial_delay": "70s", "max_delay": "70s"}
            tables.insert(0, {**table, "match": STANDING, "retry": slow})
        return Configuration.model_validate({**settings, "http": None, "tables": tables})

    def _faults(self, random: Random) -> list[Event]:
        kinds = random.sample(sorted(_FAULTS), random.choice((0, 1, 1, 2, 3)))
        return [
            Event(
                random.uniform(0, self.seconds),
                kind,
                random.randrange(self.workers),
                random.uniform(*_FAULTS[kind]),
            )
            for kind in kinds
            for _ in range(random.choice((1, 1, 2, 4)))
        ]
