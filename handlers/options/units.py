"""The notation of durations (`250ms`, `5s`, `2m`, `1h`) and sizes (`512KiB`, `64MiB`, `1GiB`)."""

from __future__ import annotations

import re
from decimal import Decimal

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

# No \d: in Python it matches every script's digits, in JSON Schema (ECMA 262) only 0-9.
DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h)$"
SIZE_PATTERN = r"^[0-9]{1,15}(B|KiB|MiB|GiB)$"

_LETTERS_AT_END = re.compile(r"[A-Za-z]+$")


def parse_duration(text: str) -> float:
    """Convert a duration to seconds.

    >>> parse_duration("250ms"), parse_duration("1.5m")
    (0.25, 90.0)

    Raises ValueError if the text is not a duration."""
    if not _fits(DURATION_PATTERN, text):
        raise ValueError(f"no duration: {text!r}")
    number, unit = _split(text)
    return float(Decimal(number) * _SECONDS[unit])


def parse_size(text: str) -> int:
    """Convert a size to bytes.

    >>> parse_size("64MiB")
    67108864

    Raises ValueError if the text is not a size."""
    if not _fits(SIZE_PATTERN, text):
        raise ValueError(f"no size: {text!r}")
    number, unit = _split(text)
    return int(number) * _BYTES[unit]


def format_duration(seconds: float) -> str:
    """Return the shortest text for `seconds` (0 or more), exact to the microsecond.

    >>> format_duration(0.1), format_duration(90), format_duration(7200)
    ('100ms', '90s', '2h')
    """
    exact = Decimal(str(seconds))
    if exact and exact < 1:
        return f"{_plain(exact * 1000)}ms"
    unit = next(unit for unit in ("h", "m", "s") if exact % _SECONDS[unit] == 0 or unit == "s")
    return f"{_plain(exact / _SECONDS[unit])}{unit}" if exact else "0s"


def format_size(size: int) -> str:
    """Return the shortest text for `size` bytes.

    >>> format_size(268435456), format_size(1000)
    ('256MiB', '1000B')
    """
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _BYTES[unit] == 0) if size else "B"
    return f"{size // _BYTES[unit]}{unit}"


def _fits(pattern: str, text: str) -> bool:
    # `$` alone would also match before a line break at the end.
    return re.fullmatch(pattern.strip("^$"), text) is not None


def _split(text: str) -> tuple[str, str]:
    unit = _LETTERS_AT_END.search(text)
    assert unit is not None  # both patterns end in letters
    return text[: unit.start()], unit[0]


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
