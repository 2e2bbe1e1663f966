"""Compare one replica with one source table, and check differences again while changes may be on their
way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from worker.column_rules.plan import ColumnPlans
from worker.verifying.comparing import (
    Column,
    Difference,
    Matched,
    TooDifferent,
    can_be_found,
    digest,
    formed,
    match,
    ranges,
    surplus,
)
from worker.verifying.replica import Replica
from worker.verifying.source import Row, Source, SourceTable

_MOST_SUSPECTS = 10_000
"""Further rows of a table are counted, but not checked again."""


@dataclass(slots=True)
class Outcome:
    """The result of one table so far."""

    source_rows: int = 0
    replica_rows: int = 0
    ranges: int = 0
    """Ranges of keys. Each has a checksum on both sides."""
    different_ranges: int = 0
    different_rows: int = 0
    """The current number: initially from all ranges, then fewer after each check that finds some equal."""
    differences: list[Difference] = field(default_factory=list)
    """Some of the different rows."""
    notes: list[str] = field(default_factory=list)
    """Remarks that are not differences of rows."""
    lacking: list[str] = field(default_factory=list)
    """Columns of the source that the replica lacks."""
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        return not self.different_rows and not self.lacking

    def note(self, match: Matched) -> None:
        self.lacking += match.lacking
        self.notes += match.notes

    def add_seconds(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(eq=False)
class Check:
    """Call `run` once, then `look_again` until all rows are equal or time is over."""

    source: Source
    table: SourceTable
    replica: Replica
    _: KW_ONLY
    chunk: int
    limit: int
    """The most differences of rows without a key that are kept completely."""
    plans: ColumnPlans | None = None
    """The table's column rules."""

    def __post_init__(self) -> None:
        self.outcome = Outcome()
        self._match = Matched()
        self._seen: dict[Row, set[bytes]] = {}
        self._not_found_yet: set[Row] = set()
        self._uncertain = 0

    @property
    def columns(self) -> Sequence[str]:
        """The column names of a difference's rows."""
        return [column.source for column in self.matched]

    @property
    def key(self) -> Sequence[str]:
        return [column.source for column in self.key_columns]

    @property
    def matched(self) -> Sequence[Column]:
        return self._match.columns

    @property
    def key_columns(self) -> Sequence[Column]:
        return [self.matched[place] for place in self._match.key]

    @property
    def has_other_values(self) -> bool:
        """Whether the rules give the replica values that the source lacks: masked, cast or added."""
        leaving = self._match.leaving
        return bool(leaving.changed or leaving.added)

    @property
    def is_whole(self) -> bool:
        """Whether `outcome.differences` contains all that were found."""
        return not self._uncertain

    def forget(self, keys: Sequence[Row]) -> None:
        """Forget these keys' earlier states, because they were written: only newer source rows are equal."""
        for key in keys:
            self._seen.get(key, set()).clear()

    def may_be_gone(self, key: Row) -> bool:
        """Whether the source has no row if `source_rows` finds none. Not known for a key that was read in
        `run` but never found by a query."""
        return key not in self._not_found_yet

    def source_rows(self, keys: Sequence[Row]) -> dict[Row, Row]:
        """Return the source's current rows with these keys, as its driver returns them: the values of
        `matched`."""
        found: dict[Row, Row] = {}
        for row in self._asked(keys):
            for one in self._of_source([row]):
                found[self._key_of(one)] = row
        self._not_found_yet -= found.keys()
        return {key: found[key] for key in keys if key in found}

    def run(self) -> None:
        """Compare all rows. Raises TooDifferent, OutOfOrder, and the errors of both sides."""
        began = time.monotonic()
        schema = self.replica.schema()
        if schema is not None:
            self._match = match(self.table, schema, self.replica.key, self.plans)
            self.outcome.note(self._match)
            if self._match.key:
                self._compare_ranges()
            else:
                self._compare_sets()
        elif not self.source.is_empty(self.table):
            raise TooDifferent("the replica has no visible rows, but the source has rows")
        self.outcome.add_seconds(time.monotonic() - began)

    def look_again(self) -> bool:
        """Return whether all rows are equal now. A row is equal if the replica has the source's row of now or
        of an earlier check. In the latter case its change is only on its way."""
        outcome = self.outcome
        if not self._match.key:
            if outcome.different_rows:
                self._compare_sets()
            return outcome.is_equal
        if self._seen:
            keys = [key for key in self._seen if can_be_found(key)]
            sources = self._by_key(self._of_source(self._asked(keys)))
            by = [column.replica for column in self.key_columns]
            replicas = self._by_key(self._of_replica(self.replica.rows_of(self._names(), keys, by)))
            left: list[Difference] = []
            sought, found = set(keys), {each.key: each for each in outcome.differences}
            for key, states in self._seen.items():
                if key not in sought:  # NULL or NaN, which finds no row
                    left.append(found[key])
                    continue
                source, replica = sources.get(key, [None])[0], replicas.get(key, [None])
                states.add(_state(source))
                if len(replica) > 1:
                    left.append(Difference(key, None, replica[1]))
                elif _state(replica[0]) not in states:
                    left.append(Difference(key, source, replica[0]))
            self._seen = {each.key: self._seen[each.key] for each in left}
            outcome.differences = left
            outcome.different_rows = len(left) + self._uncertain
        return outcome.is_equal

    def _compare_ranges(self) -> None:
        outcome = self.outcome
        order = {column.source: column.is_text for column in self.key_columns}
        source = self.source.rows(self.table, self.columns, order)
        replica = self.replica.rows(self._names(), [column.replica for column in self.key_columns])
        for each in ranges(self._of_source(source), self._of_replica(replica), self._key_of, self.chunk):
            outcome.ranges += 1
            outcome.source_rows += each.source_rows
            outcome.replica_rows += each.replica_rows
            outcome.different_ranges += bool(each.differences)
            outcome.different_rows += len(each.differences)
            for difference in each.differences:
                if len(self._seen) < _MOST_SUSPECTS:
                    self._seen[difference.key] = {_state(difference.source)}
                    if difference.source is not None:
                        self._not_found_yet.add(difference.key)
                    outcome.differences.append(difference)
                else:
                    self._uncertain += 1

    def _asked(self, keys: Sequence[Row]) -> Iterator[Row]:
        return self.source.rows_of(self.table, self.columns, keys, self.key)

    def _by_key(self, rows: Iterable[Row]) -> dict[Row, list[Row | None]]:
        found: dict[Row, list[Row | None]] = {}
        for row in rows:
            found.setdefault(self._key_of(row), []).append(row)
        return found

    def _key_of(self, row: Row) -> Row:
        return tuple(row[place] for place in self._match.key)

    def _names(self) -> list[str]:
        return [column.replica for column in self.matched]

    def _compare_sets(self) -> None:
        outcome = self.outcome
        more, outcome.source_rows, outcome.replica_rows = surplus(*self._both())
        outcome.ranges = 1
        outcome.different_ranges = int(bool(more))
        outcome.different_rows = sum(map(abs, more.values()))
        outcome.differences = list(self._found_again(more)) if more else []

    def _found_again(self, more: Counter[bytes]) -> Iterator[Difference]:
        """Yield the rows of the first few digests."""
        left = dict(more)
        for rows, sign in zip(self._both(), (1, -1), strict=True):
            found = 0
            for row in rows:
                each = digest(row)
                if left.get(each, 0) * sign > 0 and found < self.limit:
                    left[each] -= sign
                    found += 1
                    yield Difference((), row, None) if sign > 0 else Difference((), None, row)

    def _both(self) -> tuple[Iterator[Row], Iterator[Row]]:
        source = self.source.rows(self.table, self.columns, {})
        return self._of_source(source), self._of_replica(self.replica.rows(self._names(), ()))

    def _of_source(self, rows: Iterable[Row]) -> Iterator[Row]:
        return formed(rows, [column.form.source for column in self.matched])

    def _of_replica(self, rows: Iterable[Row]) -> Iterator[Row]:
        return formed(rows, [column.form.spark for column in self.matched])


def _state(row: Row | None) -> bytes:
    return b"" if row is None else digest(row)
