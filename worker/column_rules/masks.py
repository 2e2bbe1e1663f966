"""Masks of column values. NULL stays NULL."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any, NamedTuple

from worker.column_rules.forms import canonical
from worker.column_rules.settings import MaskRule

REDACTED = "***"

Leaves = Callable[[Any], Any]


class ColumnMask(NamedTuple):
    """A mask that is ready to use."""

    rule: MaskRule
    leaves: Leaves
    """Value -> its masked form."""
    type: str | None
    """The type text of the masked column; None: the source's own."""


def mask_of(rule: MaskRule, secret: str | None) -> ColumnMask:
    """`secret`: masking.secret, for a hash without its own. Raises ValueError if a hash has no secret."""
    match rule.kind:
        case "hash":
            own = rule.secret or secret
            if not own:
                raise ValueError("hash needs a secret: set masking.secret, or {hash: {secret: ...}}")
            return ColumnMask(rule, _hashing(own.encode()), "varchar(64)")
        case "redact":
            return ColumnMask(
                rule, lambda value: None if value is None else REDACTED, f"varchar({len(REDACTED)})"
            )
        case "partial":
            length = rule.first + len(REDACTED) + rule.last
            return ColumnMask(rule, _partial(rule.first, rule.last), f"varchar({length})")
    return ColumnMask(rule, lambda _: None, None)


def _hashing(secret: bytes) -> Leaves:
    keyed = hmac.new(secret, digestmod=hashlib.sha256)

    def leaves(value: Any) -> str | None:
        if value is None:
            return None
        one = keyed.copy()  # takes a third of the time of a new HMAC
        one.update(canonical(value))
        return one.hexdigest()

    return leaves


def _partial(first: int, last: int) -> Leaves:
    def leaves(value: Any) -> str | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else canonical(value).decode("utf-8", "replace")
        if len(text) <= first + last:  # the whole text would be visible
            return REDACTED
        return f"{text[:first]}{REDACTED}{text[len(text) - last :]}"

    return leaves
