"""Changes as Arrow: cuts a batch into pieces whose rows have one shape, each of them one table for the log.

`added` describes a segment's columns. A segment of a replica with a key has one row per key. Others have one
per change (two for an update without a key)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from handlers.api import Change, Row
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.folding import fold, image_of, images_of, keys_of
from handlers.spark.rows.shape import TIME, Mode, Shape, added_columns, log_schema, reserved_names
from handlers.spark.rows.source_columns import Columns, Run

_ALONE = frozenset(("ddl", "truncate"))
_NOTHING = Declared()


@dataclass(frozen=True, slots=True, eq=False)
class RowPiece:
    """Consecutive row changes of one shape. They are not in it: their rows may be in another process."""

    start: int
    """Index of the first change in the batch ..."""
    stop: int
    """... and of the last, exclusive."""
    shape: Shape
    """Equal to the known shape if the rows fit it."""
    partial: bool
    """Whether a row lacks some columns: its `absent` names them."""
    rows: pa.Table
    """The segment's rows. Their schema is `log_schema(shape)`."""
    places: Sequence[int]
    """For each row, the place of its last change in the piece."""


@dataclass(frozen=True, slots=True, eq=False)
class AlonePiece:
    """DDL or a truncate of a replica or history: it concerns the table, not rows."""

    change: Change
    start: int
    stop: int


Piece = RowPiece | AlonePiece


def pieces(
    changes: Sequence[Change],
    *,
    mode: Mode,
    prefix: str,
    overrides: Mapping[str, pa.DataType],
    known: Shape | None,
    table: str = "",
    declared: Declared = _NOTHING,
) -> Iterator[Piece]:
    """Cut the changes of one table into pieces, in order.

    `overrides`: column in lower case -> type, overrides the source's. `known`: the shape of the log, None for
    a new one. `table`: for messages. `declared`: by the target table.

    All pieces are made before the first is returned. So Rejected, whose `at` is the place in `changes`, is
    raised before anything is applied. It is raised for a value that does not fit its column and a row without
    its key. An update without a key that lacks the old row raises it, and so do names that are equal in
    Spark."""
    made: list[Piece] = []
    start = 0
    for (is_alone, types, key), group in groupby(changes, _cut):
        run = list(group)
        if is_alone and mode in {"changelog", "function"}:
            known = known or Shape(pa.schema([]), ())
            made += (_statement(one, start + n, known, mode, prefix) for n, one in enumerate(run))
        elif is_alone:
            made += (AlonePiece(one, start + n, start + n + 1) for n, one in enumerate(run))
        else:
            rows = Run(run, start, types or {}, key, known, overrides, table, declared)
            piece = _Cutter(mode, prefix).piece(rows)
            known = piece.shape
            made.append(piece)
        start += len(run)
    return iter(made)


def _statement(change: Change, start: int, shape: Shape, mode: Mode, prefix: str) -> RowPiece:
    """Return the row of DDL or a truncate. The source's columns are null."""
    added, schema = _added([change], mode, prefix), log_schema(shape, mode=mode, prefix=prefix)
    columns = [added.get(field.name, pa.nulls(1, field.type)) for field in schema]
    rows = pa.table(columns, schema=schema)
    return RowPiece(start, start + 1, shape, partial=False, rows=rows, places=[0])


def _cut(change: Change) -> tuple[bool, Mapping[str, str] | None, tuple[str, ...]]:
    if change.op in _ALONE:
        return True, None, ()
    return False, change.types, change.key_columns or ()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a piece before they are typed."""

    columns: Columns
    rows: Sequence[Row]
    places: Sequence[int]
    """The place of each row's change in the run."""
    ops: Sequence[str]
    partial: frozenset[int] = frozenset()
    """Which rows may lack columns."""
    deleted: Sequence[Row] = ()
    """Rows of which only the key is kept. They follow the others."""
    deleted_places: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Cutter:
    mode: Mode
    prefix: str

    def piece(self, run: Run) -> RowPiece:
        if self.mode == "replica":
            found = self._folded(run) if run.key else self._doubled(run)
            return self._piece(run, found, [*found.places, *found.deleted_places])
        return self._listed(run) if self.mode == "history" else self._changelog(run)

    def _columns(self, run: Run, images: Sequence[Row]) -> Columns:
        return Columns(run, images, reserved_names(self.mode, self.prefix), self.prefix)

    # ---- the rows of each mode

    def _folded(self, run: Run) -> _Rows:
        images = images_of(run)
        ops = [change.op for change in run.changes]
        alive = [image for image, op in zip(images, ops, strict=True) if op != "delete"]
        columns = self._columns(run, alive or images)
        keys = keys_of(run, columns, images)
        folded = fold(images, ops, keys, columns.lacking(images))
        names = ["insert" if is_new else "upsert" for is_new in folded.are_new]
        names += ["delete"] * len(folded.deleted)
        gone = [images[place] for place in folded.deleted]
        return _Rows(columns, folded.rows, folded.places, names, folded.partial, gone, folded.deleted)

    def _doubled(self, run: Run) -> _Rows:
        """Turn updates into a delete of the old row and an insert of the new one, completed from it."""
        rows, places, ops = [], [], []
        for place, change in enumerate(run.changes):
            before, after = change.before or {}, change.after or {}
            if change.op in ("update", "delete") and not (before and change.before_is_whole):
                raise run.rejected(place, _without_old_row)
            if change.op == "update":
                rows += [before, after if change.is_whole else {**before, **after}]
                places += [place, place]
                ops += ["delete", "insert"]
            else:
                rows.append(image_of(run, place))
                places.append(place)
                ops.append("delete" if change.op == "delete" else "insert")
        return _Rows(self._columns(run, rows), rows, places, ops)

    def _listed(self, run: Run) -> RowPiece:
        """Return one row per change."""
        images = images_of(run)
        columns = self._columns(run, images)
        if run.key:
            keys_of(run, columns, images)  # checks that each row has its key
        ops = [change.op for change in run.changes]
        places = range(len(images))
        return self._piece(run, _Rows(columns, images, places, ops, columns.lacking(images)), places)

    def _changelog(self, run: Run) -> RowPiece:
        """Return one row per change, with the row before an update."""
        images = images_of(run)
        count = len(images)
        updated = [
            place
            for place, change in enumerate(run.changes)
            if change.op == "update" and change.before is not None
        ]
        befores = [run.changes[place].before or {} for place in updated]
        columns = self._columns(run, [*images, *befores])
        arrays = columns.arrays(
            images, range(count), befores, updated, in_others=columns.names, are_nested=True
        )
        shape = _shape(run, arrays)
        rows = {name: array.slice(0, count) for name, array in arrays.items()}
        if arrays:
            numbers: list[int | None] = [None] * count
            for number, place in enumerate(updated):
                numbers[place] = count + number
            structs = pa.StructArray.from_arrays(list(arrays.values()), fields=list(shape.schema))
            rows[f"{self.prefix}before"] = structs.take(pa.array(numbers, pa.int64()))
        return self._row_piece(run, shape, rows, range(count), partial=False)

    # ---- composing pieces

    def _piece(self, run: Run, found: _Rows, places: Sequence[int]) -> RowPiece:
        arrays = found.columns.arrays(
            found.rows,
            found.places,
            found.deleted,
            found.deleted_places,
            in_others=run.key,
            partial=found.partial,
        )
        shape = _shape(run, arrays)
        absent: list[list[str] | None] = [None] * len(places)
        for number in found.partial:
            row = found.rows[number]
            absent[number] = [name for name in shape.schema.names if name not in row] or None
        special = {
            f"{self.prefix}op": pa.array(found.ops, pa.string()),
            f"{self.prefix}absent": pa.array(absent, pa.list_(pa.string()))
            if found.partial
            else pa.nulls(len(places), pa.list_(pa.string())),
            f"{self.prefix}row": pa.array(range(len(places)), pa.int32()),
        }
        return self._row_piece(run, shape, {**special, **arrays}, places, partial=any(absent))

    def _row_piece(
        self, run: Run, shape: Shape, arrays: dict[str, pa.Array], places: Sequence[int], *, partial: bool
    ) -> RowPiece:
        schema = log_schema(shape, mode=self.mode, prefix=self.prefix)
        changes = [run.changes[place] for place in places]
        every = {**_added(changes, self.mode, self.prefix), **arrays}
        rows = pa.table([every[name] for name in schema.names], schema=schema)
        stop = run.start + len(run.changes)
        return RowPiece(run.start, stop, shape, partial, rows, places)


def _shape(run: Run, arrays: Mapping[str, pa.Array]) -> Shape:
    known, types = run.known, [array.type for array in arrays.values()]
    if known is not None and known.key == run.key and known.has(list(arrays), types):
        return known
    return Shape(pa.schema(list(zip(arrays, types, strict=True))), run.key)


def _added(changes: Sequence[Change], mode: Mode, prefix: str) -> dict[str, pa.Array]:
    """Return the added columns that come from the changes themselves."""
    wanted = added_columns(mode, prefix, keyed=True)
    times = [None if (ms := change.source_time_ms) is None else ms * 1_000 for change in changes]
    made: dict[str, pa.Array] = {f"{prefix}source_time": pa.array(times, TIME)}
    for name in ("op", "topic", "partition", "offset", "index", "sql"):
        arrow = wanted.get(prefix + name)
        if arrow is not None:
            made[prefix + name] = pa.array([getattr(change, name) for change in changes], arrow)
    return made


def _without_old_row(where: str) -> str:
    return (
        f"the change at {where} does not have the whole old row, and its table has no primary key, so the "
        "row is unknown. Let the source send whole old rows, or give the table a key"
    )
