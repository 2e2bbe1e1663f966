"""What an example needs of a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from handlers import Handler

from ..rules import GONE
from ..source import Row
from ..told import Limits
from ..writers.writing import Names

_AMOUNTS = {"amount", "total"}


@dataclass(frozen=True)
class Target:
    """A handler that is open, and what its tables hold."""

    type: str
    handler: Handler
    rows: Callable[[Names], list[Row]]
    """What a table holds, as text."""
    forget: Callable[[Names], None]
    """The table is not needed any more."""
    limits: Limits = field(default_factory=Limits)
    prepare: Callable[[Names], None] | None = None
    """Make the table, with a column of the target's own."""
    hand_out: Callable[[Names, str], None] | None = None
    """Set that column, where it is NULL."""
    restart: Callable[[], None] | None = None
    """Close the handler, and go on with another one of the same options."""
    settle: Callable[[], None] | None = None
    """Bring what was handed over into the tables."""
    at_once: int = 1
    """How many examples go together, because `settle` takes long."""
    size: int = 1
    """How much more happens in one example, and to how many more rows, because a new table takes long."""


def texts(row: Mapping[str, Any]) -> Row:
    """As `Expected` has it: how many digits a number is told with is not looked at here."""
    found = {name: str(value) for name, value in row.items() if value is not None}
    for name in _AMOUNTS & found.keys():
        found[name] = str(Decimal(found[name]).quantize(Decimal("0.01")))
    return found | {GONE: "marked"} if GONE in found else found
