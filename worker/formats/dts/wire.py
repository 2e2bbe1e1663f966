"""Avro's binary encoding as far as DTS records need it: https://avro.apache.org/docs/1.12.0/specification/

Each function takes the bytes and a place in them, and gives what is there and the place behind it. All raise
ValueError for what cannot be, and IndexError where the bytes end too soon.
"""

from __future__ import annotations

__all__ = ["read_bytes", "read_count", "read_long", "skip_long"]

_MAX_SHIFT = 63  # a long has ten bytes of seven bits at most


def read_long(value: bytes, at: int) -> tuple[int, int]:
    """An int, a long, a union's branch or an enum's place: zig-zag, seven bits a byte, lowest first."""
    byte = value[at]
    at += 1
    bits, shift = byte & 0x7F, 7
    while byte > 0x7F:
        if shift > _MAX_SHIFT:
            raise ValueError(f"a number of more than 64 bits at byte {at}")
        byte = value[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        shift += 7
    return (bits >> 1) ^ -(bits & 1), at


def skip_long(value: bytes, at: int) -> int:
    """The place behind a number."""
    while value[at] > 0x7F:
        at += 1
    return at + 1


def read_bytes(value: bytes, at: int) -> tuple[bytes, int]:
    """A string or bytes: the length, then so many bytes. Where the record ends too soon they are fewer, and
    the place is behind its end."""
    length = value[at]
    if not length & 0x81:  # one byte, and not negative
        end = at + 1 + (length >> 1)
        return value[at + 1 : end], end
    length, at = read_long(value, at)
    if length < 0:
        raise ValueError(f"a length of {length} at byte {at}")
    return value[at : at + length], at + length


def read_count(value: bytes, at: int) -> tuple[int, int]:
    """How many items the next block of an array or a map has; 0: that was the last one."""
    count, at = read_long(value, at)
    if count >= 0:
        return count, at
    return -count, skip_long(value, at)  # then the block's size in bytes follows
