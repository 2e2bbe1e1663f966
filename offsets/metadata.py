"""A checkpoint as text, for the metadata of a Kafka commit.

`binlane2:<payload bytes>:<CRC-32 of base offset and payload, 8 hex digits>:<payload in base 85>`

The payload starts with a stamp of four bytes, which makes each commit unique. Then come the length of the
topic's id, one byte, and the id in ASCII. Then a varint (7 bits a byte, lowest first): one more than how many
partitions the topic had when the group began, 0 if unknown. Then the finished ranges: one byte for their
packing (0: plain, 1: deflated, without a header), and two varints for each range. The first is its distance,
less one, from the end of the previous range (for the first: from the base offset). The second is its length,
less one. Both are at least one before that.

Kafka's limit is 4,096 bytes (`offset.metadata.max.bytes`). confluent-kafka uses one of them for a closing
zero byte. So 4,095 characters are accepted, and 4,096 are rejected."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from itertools import accumulate

from offsets.types import Checkpoint, OffsetRange, count_of

DEFAULT_LIMIT = 4000
"""Characters. Below Kafka's limit, so that a broker with a slightly lower limit accepts it too."""

_PLAIN, _DEFLATED = b"\0", b"\1"
_TEXT = re.compile(r"binlane2:([1-9][0-9]{0,8}):([0-9a-f]{8}):([!-~]+)")
_STAMP_BYTES = 4
_FIRST_STEP = 1024
# Beyond this, even the most regular ranges are dropped: finding out how many fit takes time.
_MOST_RANGES = 65_536
_ALWAYS_FIT = 300
_LARGEST_OFFSET = 2**63 - 1


def encode(checkpoint: Checkpoint, stamp: int = 0, limit: int = DEFAULT_LIMIT) -> str:
    """Encode a checkpoint in at most `limit` characters, with as many of its lowest ranges as fit (to 1 %).
    Returns an empty text if even the rest does not fit.

    `stamp`: any number below 2**32. Costs about 0.3 ms for 1,000 ranges, 5 ms if ranges must be left out.

    Raises ValueError: the ranges are invalid."""
    base_offset, ahead = checkpoint.offset, checkpoint.ahead
    topic_id = (checkpoint.topic_id or "").encode("ascii")
    began = 0 if checkpoint.began_with is None else checkpoint.began_with + 1
    head = stamp.to_bytes(_STAMP_BYTES, "big") + bytes((len(topic_id),)) + topic_id + _varint(began)
    fitting, text = 0, _text(head, b"", base_offset)
    if len(text) > limit:
        return ""
    most = min(len(ahead), _MOST_RANGES)
    step = min(most, _FIRST_STEP)
    while step:
        packed, ends = _varints(ahead[:step], base_offset)
        candidate = _text(head, packed, base_offset)
        if len(candidate) > limit:
            guess = step * limit // len(candidate)
            return _fit(head, packed, ends, base_offset, limit, fitting=fitting, text=text, guess=guess)
        if step == most:
            return candidate
        fitting, text = step, candidate
        # Slightly more than the size so far predicts, so the next step is usually the last.
        step = min(max(2 * step, step * limit * 9 // (len(candidate) * 8)), most)
    return text


def decode(text: str, base_offset: int) -> Checkpoint | None:
    """Decode the checkpoint that `encode` wrote for this base offset, as far as it fitted. For an empty text:
    a checkpoint with only the offset.

    None for anything else: another program's text, a damaged text, or one for another base offset."""
    if not text:
        return Checkpoint(base_offset)
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    try:
        payload = base64.b85decode(found[3])
        # Several texts can decode to the same bytes. Only the text that encode writes is valid.
        if len(payload) != int(found[1]) or base64.b85encode(payload).decode("ascii") != found[3]:
            return None
        if _checksum(payload, base_offset) != int(found[2], 16):
            return None
        topic_id, began_with, rest = _head(payload)
        packed = zlib.decompress(rest[1:], -zlib.MAX_WBITS) if rest[:1] == _DEFLATED else rest[1:]
        return Checkpoint(base_offset, _ranges(packed, base_offset), topic_id, began_with)
    except (ValueError, zlib.error):
        return None


def left_out(checkpoint: Checkpoint) -> int:
    """Return how many finished records of the checkpoint do not fit into a commit's metadata."""
    if len(checkpoint.ahead) < _ALWAYS_FIT:
        return 0
    held = decode(encode(checkpoint), checkpoint.offset)
    return count_of(checkpoint.ahead) - (count_of(held.ahead) if held is not None else 0)


def _head(payload: bytes) -> tuple[str | None, int | None, bytes]:
    """Return the topic's id, the number of partitions that the group began with, and the bytes of the ranges.

    Raises ValueError if there are too few bytes."""
    if len(payload) <= _STAMP_BYTES:
        raise ValueError("no head")
    place = _STAMP_BYTES + 1 + payload[_STAMP_BYTES]
    topic_id = payload[_STAMP_BYTES + 1 : place].decode("ascii")
    end = place
    while end < len(payload) and payload[end] & 0x80:
        end += 1
    (began,) = _values(payload[place : end + 1])
    return topic_id or None, began - 1 if began else None, payload[end + 1 :]


def _fit(
    head: bytes,
    packed: bytes,
    ends: Sequence[int],
    base_offset: int,
    limit: int,
    *,
    fitting: int,
    text: str,
    guess: int,
) -> str:
    """Return the text with the most ranges that fit. `fitting` of them (`text`) fit, all in `packed` do not.

    `ends[n]` is the end of the varints of the first n ranges. Stops within 1 % of the limit."""
    too_many = len(ends) - 1
    near = limit - limit // 100
    middle = guess
    while too_many - fitting > 1 and len(text) < near:
        middle = min(max(middle, fitting + 1), too_many - 1)
        candidate = _text(head, packed[: ends[middle]], base_offset)
        if len(candidate) <= limit:
            fitting, text = middle, candidate
        else:
            too_many = middle
        middle = (fitting + too_many) // 2
    return text


def _text(head: bytes, packed: bytes, base_offset: int) -> str:
    # Work finished in random order gives numbers without repeated sequences. The search for those makes
    # deflate 25 % larger and ten times slower than its Huffman code alone. Regular patterns suit run lengths.
    huffman = _deflate(packed, zlib.Z_HUFFMAN_ONLY)
    runs = _deflate(packed, zlib.Z_RLE)
    payload = head + min(_PLAIN + packed, _DEFLATED + huffman, _DEFLATED + runs, key=len)
    checksum = _checksum(payload, base_offset)
    return f"binlane2:{len(payload)}:{checksum:08x}:{base64.b85encode(payload).decode('ascii')}"


def _deflate(data: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return packer.compress(data) + packer.flush()


def _checksum(payload: bytes, base_offset: int) -> int:
    return zlib.crc32(payload, zlib.crc32(base_offset.to_bytes(8, "big", signed=True)))


def _varints(ahead: Sequence[OffsetRange], base_offset: int) -> tuple[bytes, Sequence[int]]:
    """Return the varints of the ranges, and the ends of the first 0, 1, 2 ... ranges in them."""
    values: list[int] = []
    previous = base_offset
    for first, end in ahead:
        values.append(first - previous - 1)
        values.append(end - first - 1)
        previous = end
    if values and min(values) < 0:
        raise ValueError(f"ranges must ascend, with gaps, after {base_offset}: {ahead!r:.200}")
    if max(values, default=0) < 0x80:
        return bytes(values), range(0, len(values) + 1, 2)
    pieces = [_varint(value) for value in values]
    sizes = map(len, pieces)
    ends = [0, *accumulate(a + b for a, b in zip(sizes, sizes, strict=True))]
    return b"".join(pieces), ends


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _values(packed: bytes) -> list[int]:
    """Decode these varints. Raises ValueError if the last one is torn."""
    values: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            values.append(value)
            value = shift = 0
    if shift:
        raise ValueError("a torn varint")
    return values


def _ranges(packed: bytes, base_offset: int) -> tuple[OffsetRange, ...]:
    """Decode the ranges. Raises ValueError for bytes that are no whole number of ranges."""
    values = _values(packed)
    if len(values) % 2:
        raise ValueError("half a range")
    ranges: list[OffsetRange] = []
    previous = base_offset
    for gap, length in zip(values[::2], values[1::2], strict=True):
        first = previous + gap + 1
        previous = first + length + 1
        ranges.append(OffsetRange(first, previous))
    if previous > _LARGEST_OFFSET:
        raise ValueError("beyond the range of Kafka's offsets")
    return tuple(ranges)
