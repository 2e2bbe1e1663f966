"""Bytes and decimals as text, without a schema that gives their form.

If the value has only one reading, that is used. If it has two, the configuration must decide."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from handlers.decimals import bounded
from worker.formats.debezium.connect.numbers import digits_of, scaled
from worker.formats.debezium.connect.values import Reader

_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_URL_SAFE = str.maketrans("-_", "+/")
_SPECIAL = {"POSITIVE_INFINITY": Decimal("Infinity"), "NEGATIVE_INFINITY": Decimal("-Infinity")}


def bytes_from_text(
    binary: str | None, size: int | None = None, *, is_padded: bool = False
) -> Callable[[str], bytes]:
    """Make a reader for `binary.handling.mode`: bytes, base64 (the same), base64-url-safe or hex. If it is
    None, the value decides. `size`: most bytes of a value; also its least if `is_padded`.
    The reader raises ValueError."""
    if binary == "hex":
        return bytes.fromhex
    if binary is not None:
        return _base64

    def fits(length: int) -> bool:
        return size is None or (length == size if is_padded else length <= size)

    def from_text(value: str) -> bytes:
        if not _HEX.fullmatch(value) or not fits(len(value) // 2):
            return _base64(value)
        # Base64 has four characters for three bytes, and pads the last four.
        if value and len(value) % 4 == 0 and fits(len(value) // 4 * 3):
            raise ValueError(
                "it may be hexadecimal or base64: set debezium.binary to the connector's binary.handling.mode"
            )
        return bytes.fromhex(value)

    return from_text


def _base64(value: str) -> bytes:
    return binascii.a2b_base64(value.translate(_URL_SAFE), strict_mode=True)


def any_decimal(
    decimals: str | None, precision: int, scale: int, from_text: Callable[[str], Decimal]
) -> Reader:
    """The reader of a decimal(precision, scale) for a `decimal.handling.mode`. None: the value decides.

    JSON numbers are valid in every mode (`decimal.format=NUMERIC`). `from_text` reads digits."""
    from_bytes = scaled(scale)

    def from_json(value: Any) -> Decimal:
        if not isinstance(value, str):
            return from_text(digits_of(value))
        if decimals == "precise":
            return from_base64(value)
        # "." and "-" do not occur in base64.
        if decimals == "string" or "." in value or "-" in value:
            return from_text(value)
        if scale or not value.isdecimal() or len(value) > precision:
            return from_base64(value)
        if len(value) % 4 == 0 and from_base64(value).adjusted() < precision:
            raise ValueError(
                "it may be digits or base64: set debezium.decimals to the connector's decimal.handling.mode"
            )
        return from_text(value)

    def from_base64(value: str) -> Decimal:
        return from_bytes(binascii.a2b_base64(value, strict_mode=True))

    return Reader(Any, from_json)


def decimal_from_text(value: str) -> Decimal:
    """Read a decimal of `decimal.handling.mode` string, including PostgreSQL's NaN and infinities. Raises
    ValueError for other texts, and for a number that is too long for any source."""
    try:
        number = _SPECIAL.get(value) or Decimal(value)
    except ArithmeticError:
        raise ValueError("no number") from None
    return bounded(number) if number.is_finite() else number
