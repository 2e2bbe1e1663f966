"""Changes that are applied or set aside together: both halves of a row that moves to another key."""

from __future__ import annotations

from collections.abc import Sequence

from handlers import Change
from handlers.rows import is_move


def borders(changes: Sequence[Change], first: int, end: int) -> list[int]:
    """The only places at which the changes from `first` up to `end` may be parted, with both of these."""
    inner = [at for at in range(first + 1, end) if not is_move(changes[at - 1], changes[at])]
    return [first, *inner, end]
