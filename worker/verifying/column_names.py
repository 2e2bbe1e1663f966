"""The source's columns under the names that column rules give them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from worker.column_rules.plan import ColumnPlans

__all__ = ["Leaving"]


@dataclass(slots=True)
class Leaving:
    """What of a table is in its replica by the rules."""

    names: dict[str, str] = field(default_factory=dict)
    """Column of the source -> its name in the replica, of those that leave."""
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Columns that are masked or cast: their values are not the source's."""
    added: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plans: ColumnPlans | None, columns: Iterable[str]) -> Leaving:
        """`plans`: None without rules."""
        if plans is None:
            return cls({name: name for name in columns})
        made = cls(added=list(plans.added))
        for name in columns:
            one = plans.treatment(name)
            if one is None:
                made.left_out.append(name)
                continue
            made.names[name] = one.to
            if one.mask is not None or one.cast is not None:
                made.changed.append(name)
        return made

    def name_of(self, name: str) -> str | None:
        """None: it does not leave."""
        return self.names.get(name)

    def source_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """These of the replica as the source calls them."""
        back = {to.lower(): name for name, to in self.names.items()}
        return tuple(back.get(name.lower(), name) for name in names)

    def notes(self, there: dict[str, Any]) -> list[str]:
        """What is told of the rules; takes the columns that they explain out of `there`, the replica's (by
        their names in lower case) that were not found in the source."""
        found = []
        kept = [name for name in self.left_out if there.pop(name.lower(), None) is not None]
        if kept:
            found.append(f"the replica still has columns that the rules leave out: {', '.join(kept)}")
        if self.changed:
            found.append(f"masked or cast by the rules, and not compared: {', '.join(self.changed)}")
        for name in self.added:
            there.pop(name.lower(), None)
        return found
