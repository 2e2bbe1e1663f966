"""Batches from dicts, to test a handler without Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from handlers.api import Batch, Change, Handler, HandlerContext, Operation
from handlers.coroutines import awaited

AnyHandler = TypeVar("AnyHandler", bound=Handler)

_TOLD = ("lacks", "before_is_whole", "moves_key")
_FIELDS = frozenset(
    ("op", "before", "after", "sql", "source_time_ms", "transaction", "index", "offset", *_TOLD)
)
_TELLING = frozenset(("before", "after", "sql"))


def make_batch(
    table: str,
    changes: Sequence[Mapping[str, Any]],
    *,
    key: str | Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    attempt: int = 1,
    shard: int | None = None,
    topic_id: str | None = None,
) -> Batch:
    """Make a batch of these changes as the worker would.

    Each entry of `changes` is an inserted row or a change. A change has `before`, `after` or `sql`, `op` if
    these do not imply it (`snapshot`, `truncate`), and any other field of Change. Each is its own record, at
    `offset` and the offsets after it, unless it has an `offset`. An update's `after` is completed from
    `before`. It lacks the other columns of `types`, unless it sets `lacks`.

    >>> batch = make_batch("shop.orders", [{"id": 1}, {"before": {"id": 1}, "after": None}], key="id")

    >>> [(change.op, change.key, change.offset) for change in batch.changes]
    [('insert', {'id': 1}, 0), ('delete', {'id': 1}, 1)]

    - `table`: "database.table". Raises ValueError if it has no dot.
    - `key`: the primary-key column or columns; None if the table has none.
    - `types`: column -> the source's type, if the handler reads it.
    - `topic_id`: Kafka's id of the topic; None if it is unknown."""
    database, dot, name = table.partition(".")
    if not dot:
        raise ValueError(f"table {table!r} is not database.table")
    columns = (key,) if isinstance(key, str) else tuple(key or ()) or None
    made: list[Change] = []
    for place, change in enumerate(changes):
        is_change = bool(change.keys() & _TELLING) and change.keys() <= _FIELDS
        fields: dict[str, Any] = dict(change) if is_change else {"after": dict(change)}
        op = fields.get("op") or _operation(fields)
        if op == "update":
            fields["after"] = after = {**(fields.get("before") or {}), **(fields.get("after") or {})}
            fields.setdefault("lacks", None if types is None else frozenset(types.keys() - after.keys()))
        made.append(
            Change(
                op=op,
                before=fields.get("before"),
                after=fields.get("after"),
                key_columns=columns,
                sql=fields.get("sql"),
                source_time_ms=fields.get("source_time_ms", 0),
                topic=topic,
                partition=partition,
                offset=fields.get("offset", offset + place),
                index=fields.get("index", 0),
                transaction=fields.get("transaction"),
                types=types,
                **{name: fields[name] for name in _TOLD if name in fields},
            )
        )
    offsets = [change.offset for change in made]
    return Batch(
        table,
        tuple(made),
        database=database,
        name=name,
        attempt=attempt,
        positions={(topic, partition): (min(offsets), max(offsets))} if offsets else {},
        records=len(set(offsets)),
        shard=shard,
        topic_ids={} if topic_id is None else {topic: topic_id},
    )


@contextmanager
def opened(handler: AnyHandler, folder: Path | str = ".", **context: Any) -> Iterator[AnyHandler]:
    """Open the handler as the worker does, and close it at the end. The methods of the result await the
    handler's coroutines.

    Relative paths in its options start from `folder`. `context`: other fields of HandlerContext. An error
    that a thread of the handler passes to `stop_worker` is raised at the end of the block."""
    told: list[BaseException] = []
    names = {"worker": "test", "handler": type(handler).__name__, "stop_worker": told.append, **context}
    opened = awaited(handler)
    opened.open(HandlerContext(folder=Path(folder), **names))
    try:
        yield opened
    finally:
        opened.close()
    if told:
        raise told[0]


class Calling(Handler):
    """Passes its batches to a function."""

    def __init__(self, call: Callable[[Batch], Any]) -> None:
        self._call = call

    def handle(self, batch: Batch) -> None:
        return self._call(batch)  # type: ignore[no-any-return]


def _operation(fields: Mapping[str, Any]) -> Operation:
    if fields.get("sql") is not None:
        return "ddl"
    if fields.get("before") is None:
        return "insert"
    return "delete" if fields.get("after") is None else "update"
