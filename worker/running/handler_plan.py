"""A configuration's handlers, by rule: made, bound to their rules, and not opened yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from handlers import Handler
from handlers.loading.registry import create
from worker.attempts.bound_handler import BoundHandler
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.running.open_handler import OpenHandler, close_all


@dataclass(slots=True)
class BoundRule:
    """A rule of the configuration with its handlers, by entry."""

    rule: TableRule
    bound: list[BoundHandler]


@dataclass(slots=True)
class HandlerPlan:
    """The handlers of another configuration: those that stay, and new ones, already open."""

    configuration: Configuration
    rules: list[BoundRule] = field(default_factory=list)
    opened: list[OpenHandler] = field(default_factory=list)
    grown: list[tuple[BoundHandler, tuple[Handler, ...]]] = field(default_factory=list)
    """Objects for new lanes."""
    given_up: bool = False
    """Nobody waits for it any more."""

    def give_up(self) -> None:
        """Close what was opened. Handlers that are opened later are closed at once."""
        self.given_up = True
        close_all(self.opened)


def handles(configuration: Configuration, entry: HandlerEntry, table: str) -> bool:
    """Whether the rule of this table ("database.table") includes the handler."""
    rule = configuration.rule_for(table)
    return rule is not None and entry in rule.handlers


def pairs(known: BoundRule) -> Iterator[tuple[HandlerEntry, BoundHandler]]:
    """Return each entry of the rule with its handler."""
    return zip(known.rule.handlers, known.bound, strict=True)


def bind(configuration: Configuration, entry: HandlerEntry) -> BoundHandler:
    """Make the handler of an entry, or one per lane if its class says so. Raises HandlerTypeError and
    OptionsError."""
    first = create(entry, configuration.folder)
    more = configuration.lanes.count - 1 if first.per_lane else 0
    others = [create(entry, configuration.folder) for _ in range(more)]
    return BoundHandler(entry.name, (first, *others))
