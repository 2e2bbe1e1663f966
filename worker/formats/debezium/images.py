"""What a Debezium record says of its row, beyond the values."""

from __future__ import annotations

from worker.formats.debezium.rows import RowShape
from worker.formats.images import NOTHING, Image, deleted, lacking, tells_more


def image_of(sent: Image, key: tuple[str, ...] | None, shape: RowShape) -> Image:
    """`sent`: the rows as they came; what it lacks has a placeholder.

    Raises UndecodableRecord for a row whose key is not told.
    """
    op, before, after, lacks, *_ = sent
    postgresql, lacks = shape.postgresql, lacks or NOTHING
    if postgresql is not None:
        for row in (before, after):
            postgresql.in_calendar(row, key or ())
    if op == "delete" and before is not None:
        if postgresql is not None and key:
            before = postgresql.deleted(before, key)
        return deleted(before, key, shape.columns | lacks if lacks else shape.columns)
    if op != "update" or after is None:
        return sent
    if postgresql is not None:
        told = after.keys()
        after = postgresql.updated(after)
        lacks |= lacking(told, after)
    lacks |= lacking(shape.columns, after)
    if before is None:
        return Image(op, None, after, lacks)
    if lacks:
        # What the record holds of the old row did not change; NULLs and fillers are no values.
        is_filler = postgresql.is_filler if postgresql is not None else lambda _, value: value is None
        known = {name: before[name] for name in lacks & before.keys() if not is_filler(name, before[name])}
        after, lacks = {**after, **known}, lacks.difference(known)
    is_whole = not lacking(shape.columns, before)
    if postgresql is not None:
        is_same = all(before.get(name) == after.get(name) for name in key or ())
        is_whole = is_whole and is_same and tells_more(before, key)
    return Image(op, before, after, lacks, is_whole)
