"""A user's function that changes a table's rows, before its column rules and its handlers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from pydantic import BeforeValidator, Field, WithJsonSchema

from handlers import Batch, Change, Handler, PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.loading.registry import load_function
from handlers.loading.user_code import refuse_unrun
from handlers.options.shared import Section
from handlers.rows import position, with_own_rows
from worker.column_rules.computed import known_before
from worker.column_rules.plan import Row, RuleFault

if TYPE_CHECKING:
    from worker.column_rules.row_rules import RowRules

_STATEMENTS = ("ddl", "truncate")
FAULTS = (RuleFault, Rejected, RuntimeError, TargetUnavailable, StopWorker)
"""What `Transform.applied` raises."""
_IMAGES = {"insert": (False, True), "snapshot": (False, True), "delete": (True, False)}
"""Operation -> whether its changes have `before` and `after`. An update has `after`."""


_record = attrgetter("topic", "partition", "offset")

_FIELDS = {"before": dict, "after": dict, "key_columns": tuple, "types": Mapping, "lacks": frozenset}
"""Field of a change -> its type, if it is not None."""


class TransformRule(Section):
    """A function that all row changes pass before the column rules and the handlers."""

    function: str = Field(min_length=1)
    """An import path such as my_module:clean."""
    per_batch: bool = False
    """false: the function takes one Change; true: it takes a Batch."""

    def load(self, folder: Path) -> Callable[[Any], Any]:
        """Return the function. Raises HandlerTypeError."""
        return load_function(self.function, folder, ["batch" if self.per_batch else "change"])


TransformChoice = Annotated[
    TransformRule | None,
    BeforeValidator(lambda value: {"function": value} if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]


class Transform:
    """Any thread. The function does not see columns that the column rules leave out or mask: they join its
    rows afterwards."""

    def __init__(self, rule: TransformRule, rows: RowRules | None, folder: Path) -> None:
        """`rows`: the table's rules, which are applied after the function. `folder`: where its module is."""
        self._rule, self._rows, self._folder = rule, rows, folder
        self._name = f"transform {rule.function}"

    @cached_property
    def _function(self) -> Callable[[Any], Any]:
        return self._rule.load(self._folder)

    def applied(self, batch: Batch, *, by_row: bool = False) -> tuple[list[Change], list[int]]:
        """Return what handlers get of the batch, and for each of its changes the end of its results.

        `by_row`: rows keep their order, not the table, so a row must keep its key. Raises FAULTS."""
        changes, ends = list[Change](), list[int]()
        for at, (origin, made) in enumerate(zip(batch.changes, self._results(batch), strict=True)):
            try:
                is_row = origin.op not in _STATEMENTS
                for one in self._formed(origin, made, batch, by_row=by_row) if is_row else made:
                    changes.append(_with_types_of(changes[-1], one) if changes else one)
            except RuleFault as fault:
                raise Rejected(str(fault), at=at) from None
            ends.append(len(changes))
        return changes, ends

    def _results(self, batch: Batch) -> list[list[Change]]:
        """Return what the function makes of each change, and each statement itself."""
        found = [[change] if change.op in _STATEMENTS else list[Change]() for change in batch.changes]
        shown = {
            at: self._shown(change) for at, change in enumerate(batch.changes) if change.op not in _STATEMENTS
        }
        places, last = {position(change): at for at, change in shown.items()}, 0
        calls = {None: batch.having([*shown.values()])} if self._rule.per_batch and shown else shown
        for at, given in calls.items():
            for one in self._asked(given, at):
                place = places.get(position(one), -1)
                if place < last or at not in (None, place):
                    told = "returned a change with another position, or not in their order"
                    raise Rejected(f"{self._name} {told}", at=at)
                found[place].append(one)
                last = place
        return found

    def _asked(self, given: Change | Batch, at: int | None) -> list[Change]:
        """`at`: the place of the change, if it is one."""
        try:
            answer = self._function(given)
            refuse_unrun(answer, self._function)
            # A row or a text is not taken for its parts: an empty one would leave the change out.
            is_one = isinstance(answer, Mapping | str | bytes) or not isinstance(answer, Iterable)
            made: list[Any] = [answer] if is_one else list(answer)
        except Rejected as error:
            raise Rejected(f"{self._name}: {error}", at=error.at if at is None else at) from error
        except TargetUnavailable as error:  # of what it asks, not of the handler
            told = f"{self._name}: {error}"
            raise TargetUnavailable(told, retry_after=error.retry_after, others_go_on=True) from error
        except StopWorker:
            raise
        except Exception as error:
            raise RuntimeError(f"{self._name}: {type(error).__name__}: {error}") from error
        for one in made:
            if not isinstance(one, Change):
                told = f"returned {type(one).__name__}, and not a Change or a list ([] leaves the change out)"
                raise Rejected(f"{self._name} {told}", at=at)
            for field, kind in _FIELDS.items():
                if (found := getattr(one, field)) is not None and not isinstance(found, kind):
                    told = f"returned a change whose {field} is no {kind.__name__}"
                    raise Rejected(f"{self._name} {told}", at=at)
        return made

    def _shown(self, change: Change) -> Change:
        """Return the change as the function may see and modify it."""
        [own] = with_own_rows([change])
        if self._rows is None:
            return own
        for row in filter(None, (own.before, own.after)):
            for name in self._rows.plans.hidden(tuple(row)):
                del row[name]
        return replace(own, sql=None)

    def _whole(self, row: Row | None, *origins: Row | None) -> Row | None:
        """Return the row with the hidden columns of the first origin that is there."""
        origin = next(filter(None, origins), None)
        if row is None or origin is None or self._rows is None:
            return row
        hidden = self._rows.plans.hidden(tuple(origin))
        return {**{name: origin[name] for name in origin if name in row or name in hidden}, **row}

    def _formed(self, origin: Change, made: Sequence[Change], batch: Batch, *, by_row: bool) -> list[Change]:
        """Return the results for one change as handlers get them. Raises RuleFault."""
        found = list[Change]()
        for one in made:
            olds = [origin.before]
            if one.op == "delete" and origin.after is not None:
                # Without a key, targets find only the old row.
                both = [origin.after, *olds] if one.key_columns else [*olds, origin.after]
                olds = sorted(both, key=partial(_unlike, one.before))
            before = self._whole(one.before, *olds)
            after = self._whole(one.after, origin.after, origin.before)
            lacks = one.lacks and one.lacks.difference(after or ())
            if after is not None and origin.after is None and not origin.before_is_whole:
                lacks = None  # the target has values that the delete does not contain
            is_told = (
                origin.is_whole if origin.before is None else (origin.lacks or set()) <= set(before or ())
            )
            is_whole = one.before_is_whole and (before is None or is_told)
            moves = one.moves_key and len(made) == 1  # else another's old row would complete it
            own = replace(
                one, before=before, after=after, lacks=lacks, before_is_whole=is_whole, moves_key=moves
            )
            if fault := _fault_of(origin, own, made[0]):
                raise RuleFault(f"{self._name} {fault}")
            if self._rows is not None:
                if own.op == "delete" and self._rows.deletes == "ignore":
                    continue
                own = self._rows.formed(own, origin, batch.database, batch.name)
            if by_row and [*(own.key or {}).values()] != [*(origin.key or {}).values()]:
                raise RuleFault(f"{self._name} or columns changed a key, but lanes.order_by is row")
            found.append(own)
        return found


def passed(handler: Handler, batch: Batch, transform: Transform | None, *, by_row: bool) -> object:
    """Pass the batch to the handler, through the transform of its table. Raises what both raise. The places
    in Rejected and PartialFailure are those of `batch`. `by_row`: see `Transform.applied`."""
    if transform is None:
        return handler.handle(batch)
    changes, ends = transform.applied(batch, by_row=by_row)
    try:
        return handler.handle(batch.having(changes)) if changes else None
    except PartialFailure as error:
        raise PartialFailure(_place(ends, error.done), error.cause) from error
    except Rejected as error:
        if error.at is None or (at := _place(ends, error.at)) == error.at:
            raise
        raise Rejected(str(error), at=at) from error


def _with_types_of(last: Change, one: Change) -> Change:
    """Let changes of one record share equal types. Targets cut batches where `types` is another object."""
    if one.types is last.types or one.types != last.types or _record(one) != _record(last):
        return one
    return replace(one, types=last.types)


def _unlike(row: Row | None, origin: Row | None) -> int:
    """Return minus the number of equal values."""
    known, nothing = origin or {}, object()
    return -sum(bool(known.get(name, nothing) == value) for name, value in (row or {}).items())


def _place(ends: Sequence[int], of: object) -> int:
    """Return the place of the change whose results contain this one; -1 if the handler did not get it."""
    return bisect_right(ends, of) if isinstance(of, int) and 0 <= of <= ends[-1] else -1


def _fault_of(origin: Change, one: Change, first: Change) -> str:
    """Explain why a result is wrong. Empty if it is not. `first`: the first result of the same change."""
    before, after, key = one.before, one.after, one.key_columns
    images = (before is not None, after is not None)
    if one.transaction != origin.transaction:
        return "changed the transaction of a change"
    if one.op not in ("update", *_IMAGES) or images != _IMAGES.get(one.op, (images[0], True)):
        return f"returned a change with op {one.op}, which does not fit its before and after"
    if (key, one.types) != (first.key_columns, first.types):  # targets cut batches by both
        return "made several changes of one, and they differ in key_columns or types"
    known, row = known_before(one), (before if after is None else after) or {}
    if one.op == "update" and any(known[name] != row.get(name) for name in key or () if name in known):
        return "returned an update with one key in before and another in after: change both in the same way"
    missing = set(key or ()).difference(row)
    if {one.op, origin.op} <= {"update", "delete"}:  # by another key, the old row may be another one
        missing |= set(key or ()).difference(known, origin.key_columns or ())
    if missing:
        names = ", ".join(sorted(missing))
        return f"returned a row without the key column {names}; an old row (before) needs a new one, too"
    return ""
