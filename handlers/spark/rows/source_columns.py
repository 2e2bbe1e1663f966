"""The rows of changes as typed columns: their names, their types, and values that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from handlers.api import Change, Rejected, Row
from handlers.spark.rows.column_types import column_type, spark_name
from handlers.spark.rows.conversions import UNFIT, ColumnType, array_of, fitting, unsigned_array
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.inferred import inferred
from handlers.spark.rows.shape import Shape

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive row changes of a batch with the same source types and key."""

    changes: Sequence[Change]
    start: int
    """The first change's place in the batch."""
    types: Mapping[str, str]
    key: tuple[str, ...]
    known: Shape | None
    overrides: Mapping[str, pa.DataType]
    """Lower-case name -> type."""
    table: str
    """For messages."""
    declared: Declared
    """The target table's declarations."""

    def rejected(self, place: int, what: Callable[[str], str]) -> Rejected:
        """Reject the change at `place` of the run. `what` makes the reason from the change's position."""
        change = self.changes[place]
        where = f"{change.topic}[{change.partition}] offset {change.offset}"
        return Rejected(f"{self.table}: {what(where)}" if self.table else what(where), at=self.start + place)


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """Return one column of the rows. None for a row without it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


class Columns:
    def __init__(self, run: Run, images: Sequence[Row], reserved: frozenset[str], prefix: str) -> None:
        """`images`: all rows of the run. Raises Rejected for names that are equal in Spark."""
        self._run = run
        self._found = frozenset().union(*images)
        self._known = {} if run.known is None else {f.name.lower(): f.type for f in run.known.schema}
        self.names = self._names(images)
        self._check_names(reserved, prefix)
        self.wanted = frozenset(self.names)
        """The columns of a whole row."""
        self.are_all_whole = self.wanted <= self._found and set(map(len, images)) == {len(self._found)}
        """Whether every image is whole."""

    def _names(self, images: Sequence[Row]) -> list[str]:
        """Return the names in their earlier order, new ones after them.

        If the source sends a type for every present column, these types are all its columns. Otherwise, an
        absent column may still appear later."""
        types = self._run.types
        before = [] if self._run.known is None else self._run.known.schema.names
        if self._found <= types.keys():
            kept, own = [name for name in before if name in types], types.keys()
        else:
            own = dict.fromkeys(chain((name for name in types if name in self._found), *images)).keys()
            spelled = {name.lower() for name in own}
            kept = [name for name in before if name in own or name.lower() not in spelled]
        return list(dict.fromkeys(chain(kept, own)))

    def _check_names(self, reserved: frozenset[str], prefix: str) -> None:
        seen: dict[str, str] = {}
        for name in self.names:
            lower = name.lower()
            other = seen.setdefault(lower, name)
            if lower in reserved:
                raise self._rejected_column(
                    name,
                    f"the source has a column {name!r}, which is also the name of a column that binlane "
                    f"adds: set `prefix` to another value than {prefix!r}",
                )
            if other != name:
                raise self._rejected_column(
                    name,
                    f"the source has columns {other!r} and {name!r}, which are the same name in Spark: "
                    "rename one of them at the source",
                )

    def _rejected_column(self, name: str, what: str) -> Rejected:
        changes = enumerate(self._run.changes)
        place = next(
            (
                place
                for place, change in changes
                if name in (change.after or ()) or name in (change.before or ())
            ),
            0,
        )
        return self._run.rejected(place, lambda where: f"{what} ({where})")

    def lacking(self, images: Sequence[Row]) -> frozenset[int]:
        """Places of the run's updates that lack columns. If the source says that a row is whole, its missing
        columns are null."""
        if self.are_all_whole:
            return frozenset()
        return frozenset(
            place
            for place, (image, change) in enumerate(zip(images, self._run.changes, strict=True))
            if change.op == "update" and not change.is_whole and not self.wanted <= image.keys()
        )

    # ---- types

    def kept(self, name: str, values: Sequence[Any]) -> ColumnType | None:
        """How a column with these values is kept. None if nothing determines it yet."""
        run, lower = self._run, name.lower()
        override = run.overrides.get(lower)
        if override is not None:
            return fitting(override)
        told = column_type(run.types[name]) if name in run.types else None
        known = self._known.get(lower)
        if told is not None and not told.is_open:
            return told if known is None or known != told.unsigned else fitting(known)
        arrow = inferred(values, known, told)
        return None if arrow is None else fitting(arrow)

    def arrays(
        self,
        rows: Sequence[Row],
        places: Sequence[int],
        others: Sequence[Row],
        other_places: Sequence[int],
        *,
        in_others: Iterable[str],
        partial: Collection[int] = (),
        are_nested: bool = False,
    ) -> dict[str, pa.Array]:
        """Return the columns of `rows`, followed by those of `others`, which have only some of them.

        `places`: each row's last change in the run. `partial`: rows whose missing columns are left unchanged.
        `are_nested`: `others` go into a struct, of which only the types are declared.

        Columns without values and type are left out, because each Parquet column has a type. If all would be
        left out, they are strings. Raises Rejected."""
        shared = frozenset(in_others)
        every_place = [*places, *other_places]
        made: dict[str, pa.Array] = {}
        for name in self.names:
            values = values_of(rows, name) if name in self._found else [None] * len(rows)
            both = [*values, *values_of(others, name)] if others and name in shared else values
            kept = self.kept(name, both)
            if kept is None:
                continue
            array = self.array(name, both, kept, every_place)
            self._check_declared(name, array, both, every_place, own=len(rows) if are_nested else None)
            self._check_null(name, rows, places, partial)
            if len(array) < len(rows) + len(others):
                array = pa.concat_arrays([array, pa.nulls(len(others), array.type)])
            made[name] = array
        return made or {name: pa.nulls(len(rows) + len(others), pa.string()) for name in self.names}

    def array(self, name: str, values: Sequence[Any], kept: ColumnType, places: Sequence[int]) -> pa.Array:
        """Build one column. `places`: each value's change. Raises Rejected."""
        try:
            return array_of(values, kept)
        except UNFIT as error:
            with suppress(*UNFIT):
                return unsigned_array(values, kept)
            for value, place in zip(values, places, strict=False):
                try:
                    array_of([value], kept)
                except UNFIT as its_error:
                    raise self._unfit(name, value, kept, place, its_error) from its_error
            raise self._unfit(name, values[0], kept, places[0], error) from error

    def _check_declared(
        self, name: str, array: pa.Array, values: Sequence[Any], places: Sequence[int], *, own: int | None
    ) -> None:
        if (found := self._run.declared.refused(name, array, own)) is not None:
            number, why = found
            raise self._run.rejected(
                self._origin(name, values[number], places[number]),
                lambda where: f"column {name!r} holds {_shown(values[number])} at {where}: {why}",
            )

    def _check_null(
        self, name: str, rows: Sequence[Row], places: Sequence[int], partial: Collection[int]
    ) -> None:
        """Reject nulls in NOT NULL columns. A column that a whole row lacks is null."""
        if name.lower() not in self._run.declared.not_null:
            return
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            is_null = row.get(name) is None and (name in row or number not in partial)
            if is_null and self._run.changes[place].op != "delete":
                raise self._run.rejected(
                    place,
                    lambda where: (
                        f"column {name!r} is NULL at {where}, but the table declares it NOT NULL: make it "
                        "nullable (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL)"
                    ),
                )

    def _unfit(self, name: str, value: Any, kept: ColumnType, place: int, error: Exception) -> Rejected:
        told = self._run.types.get(name, "no type")
        reason = str(error).partition("\n")[0] or type(error).__name__
        return self._run.rejected(
            self._origin(name, value, place),
            lambda where: (
                f"column {name!r} ({told}) holds {_shown(value)} at {where}, which does not fit "
                f"{spark_name(kept.arrow)}: {reason}. Give it a type that holds it, in `columns`"
            ),
        )

    def _origin(self, name: str, value: Any, place: int) -> int:
        """Return the change that sent the value: a row may contain values of several partial changes."""
        for earlier in range(place, -1, -1):
            change = self._run.changes[earlier]
            for image in (change.after, change.before):
                if image is not None and name in image and image[name] is value:
                    return earlier
        return place


def _shown(value: Any) -> str:
    shown = str(value)
    return repr(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "...")
