"""Histories in ClickHouse: each version of a row is a row, found by its key and the change that opened it.

A change that ends a version writes that row again, with its end and a higher `_version`. What is written
depends only on the changes and on what earlier ones have written. So a batch that comes again writes the same
rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from handlers.clickhouse.client import OPENED, ClickHouseClient, identifier
from handlers.clickhouse.writing import Line, Table, encoded, held_rows, insert, line_of
from handlers.http.parts import RowRefused
from handlers.versioned.row_states import State, are_one, in_pieces
from handlers.versioned.versions import Unfit

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


class _Version(msgspec.Struct):
    """A version of a row."""

    values: Mapping[str, bytes]
    """The source's columns in RowBinary."""
    opened: int
    """The position of the change that opened it (see `handlers.versioned.versions`)."""
    start: int
    end: int | None
    """In milliseconds. None: it is the current one."""
    last: State | None = None
    """The last change of the batch that confirmed or ended it. Of the opened ones: the change that did."""


@dataclass(frozen=True, slots=True)
class History:
    """Writes versions to the tables of a server. Any thread."""

    client: ClickHouseClient
    period: tuple[str, str]
    """The columns with the start and the end of versions."""
    most_bytes: int
    """The most bytes of one insert."""

    def write(self, table: Table, states: Sequence[State]) -> None:
        """Insert the versions that the changes open and end. `states`: one for each change.

        Raises as `handlers.clickhouse.writing.write`."""

        def read(some: Sequence[State], is_bounded: bool) -> dict[str, _Version]:
            return self._last(table, some, self.most_bytes if is_bounded else 0)

        for some, last in in_pieces(states, read):
            opened, ended = _follow(table, some, last)
            # If the server refuses an opened one, the version before it stays the current one. That may be of
            # the same batch, so no version is opened with its end. Deleted rows have one, and only dead
            # letters see them. They come last: one that is set aside would hide earlier letters.
            for is_deleted in (False, True):
                those = [one for one in opened if (one.end is not None) == is_deleted]
                self._open(table, some, self._lines(table, those))
            try:
                insert(self.client, table, self._lines(table, ended), self.most_bytes)
            except RowRefused as error:
                why = "it refuses the end of a version that it has accepted, so the row has two current ones"
                raise Unfit(f"{table.name}: {why}: {error}") from None

    def _lines(self, table: Table, versions: Sequence[_Version]) -> list[Line]:
        return [self._line(table, one, one.last) for one in versions if one.last is not None]

    def _open(self, table: Table, states: Sequence[State], lines: Sequence[Line]) -> None:
        """Insert opened versions. Raises RowRefused, and then deletes those that are set aside with the
        refused one, because no change would end those before them. If an earlier attempt has written them
        all, they count as accepted: their ends may be written, too."""
        try:
            insert(self.client, table, lines, self.most_bytes)
        except RowRefused as error:
            some = _set_aside(states, error.at)
            more = f"AND {OPENED} BETWEEN {some[0].version} AND {some[-1].version}"
            written = held_rows(self.client, table, some, 0, more=more)
            if all(one.row is None or one.text in written for one in some):
                places = {one.at for one in some}
                self._open(table, states, [line for line in lines if line.at not in places])
                return
            gone = [
                _Version(written[one.text], one.version, one.time, None, replace(one, row=None))
                for one in some
                if one.text in written
            ]
            insert(self.client, table, self._lines(table, gone), self.most_bytes)
            raise

    def _line(self, table: Table, version: _Version, last: State) -> Line:
        times = [None if at is None else _EPOCH + _MILLISECOND * at for at in (version.start, version.end)]
        own = {**dict(zip(self.period, times, strict=True)), OPENED: version.opened}
        is_deleted = last.row is None and last.version == version.opened
        return line_of(last, {**version.values, **encoded(table, own, last.at)}, is_deleted=is_deleted)

    def _last(self, table: Table, states: Sequence[State], most_bytes: int) -> dict[str, _Version]:
        """Return key text -> the row's last version, as it was before the first of these changes.

        Raises AnswerTooLarge."""
        added = (*self.period, OPENED, "_version")
        key = ", ".join(map(identifier, table.key))
        found: dict[str, _Version] = {}
        for partition in {state.partition for state in states}:
            some = [state for state in states if state.partition == partition]
            first = min(state.version for state in some)
            more = f"AND {OPENED} < {first} ORDER BY {OPENED} DESC LIMIT 1 BY {key}"
            held = held_rows(self.client, table, some, most_bytes, added=added, more=more)
            for text, values in held.items():
                start, end, opened, version = map(values.pop, added)
                # It may have been ended by this batch or a later one: then it is current here.
                is_ended = not end[0] and _integer(version) < first
                until = _integer(end[1:]) if is_ended else None
                found[text] = _Version(values, _integer(opened), _integer(start), until)
        return found


def _set_aside(states: Sequence[State], at: int) -> Sequence[State]:
    """Return the state with this place, and those that are set aside with it."""
    start = end = next(number for number, one in enumerate(states) if one.at == at)
    while start and are_one(states[start - 1], states[start]):
        start -= 1
    while end + 1 < len(states) and are_one(states[end], states[end + 1]):
        end += 1
    return states[start : end + 1]


def _follow(
    table: Table, states: Sequence[State], last: dict[str, _Version]
) -> tuple[Sequence[_Version], Sequence[_Version]]:
    """Return the versions that are opened, without their ends, and those that are then confirmed or ended.
    `last`: key text -> the row's last version.

    A change without effect is written as well: an earlier dead letter loses against it. If a transform has
    made several changes of one, the last one of a row counts."""
    opened: dict[tuple[str, int], _Version] = {}
    every = list(last.values())
    unset = dict.fromkeys(table.columns, b"\x01")  # NULL: so is a column read that a version lacks
    for state in states:
        if state.leaves and state.row == state.key:
            continue  # it changes nothing (see `is_move`)
        known = last.get(state.text)
        current = known if known is not None and known.end is None else None
        values: Mapping[str, bytes] = encoded(table, state.key if state.row is None else state.row, state.at)
        if current and state.is_snapshot and values.items() <= {**unset, **current.values}.items():
            current.last = state
            continue
        at = state.time
        if known is not None:
            at = max(at, known.start if known.end is None else known.end)
        if current is not None and not state.whole:
            values = {**current.values, **values}
        if current is not None:
            current.end, current.last = at, state
        if state.row is not None or current is None or current.opened == state.version:
            end = at if state.row is None else None  # of a deleted row, which only dead letters see
            opened[state.text, state.version] = _Version(values, state.version, at, end, state)
        if state.row is not None:
            last[state.text] = _Version(values, state.version, at, None)
            every.append(last[state.text])
    return [*opened.values()], [one for one in every if one.last and one.last.version > one.opened]


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "little", signed=True)
