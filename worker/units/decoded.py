"""Decodes the records of a batch under its table's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from handlers import Change
from worker.column_rules.applying import bring_under, fault_under, has_rules
from worker.formats.decoding import LARGE, one_by_one, refuse_oversized
from worker.formats.interface import Record, UndecodableRecord
from worker.units.chunk import Chunk
from worker.units.table import Table

Undecodable = Callable[[Record, UndecodableRecord], bool]
"""Returns whether a bad record may be skipped."""


class Decoded(NamedTuple):
    changes: Sequence[Change]
    ends: Sequence[int]
    """For each record, the number of changes up to its end."""
    fault: UndecodableRecord | None
    """Why the next record, which may not be skipped, could not be decoded."""


class Elsewhere(Protocol):
    """Decodes in a child process, where the changes stay."""

    def decoded(
        self, chunks: Iterable[Chunk], table: Table, undecodable: Undecodable, most_bytes: int
    ) -> Decoded:
        """As the function below. The changes show only their places. Raises ProcessAway."""

    def promised(self, chunks: Iterable[Chunk], table: Table, most_bytes: int) -> Sequence[Change]:
        """Return what stands for the changes until their first call has decoded them."""

    def kept_promise(self, changes: Sequence[Change] | None, undecodable: Undecodable) -> Decoded | None:
        """As `decoded`, after that call. None: it has not decoded them."""

    def carried(self, changes: Iterable[Change], chunks: Sequence[Chunk], rule: Any) -> Sequence[Change]:
        """Return these decoded changes as a handler in a child process takes them. `rule`: theirs."""

    def forget(self, changes: Sequence[Change] | None) -> None:
        """Release the rows of these changes. Their next call decodes them again."""


def decoded(chunks: Iterable[Chunk], table: Table, undecodable: Undecodable, most_bytes: int) -> Decoded:
    """Decode up to a bad record that may not be skipped. None may take more than about `most_bytes`."""
    changes: list[Change] = []
    ends: list[int] = []
    warnings: list[tuple[Record, UndecodableRecord]] = []
    expectations = table.expectations
    for chunk in chunks:
        known = chunk.changes
        if known is not None and (chunk.table is table or _show_alike(chunk, table)):
            begin = len(changes)
            changes.extend(known)
            ends.extend([begin + end for end in chunk.ends] if begin else chunk.ends)
            continue
        assignment = chunk.assignment
        decode = assignment.format.decode
        is_large = chunk.bytes > LARGE and max(map(len, chunk.messages)) > LARGE
        by_rules = has_rules(table.row_rules, table.statement_rules, alone=chunk.alone)
        # Rules are applied to each record. If they refuse it, the error belongs to that record.
        singly = is_large or by_rules or chunk.alone or known is not None or expectations is not None
        decode_many = one_by_one if singly else assignment.decode_many
        messages = iter(chunk.messages)
        first = len(ends)
        while (message := decode_many(table.label, messages, changes, ends)) is not None:
            begin = ends[-1] if ends else 0
            fault: UndecodableRecord | None = None
            try:
                if is_large:
                    refuse_oversized(message, most_bytes)
                decode(message, changes)
                if known is not None and (rows := chunk.rows_of(len(ends) - first)) is not None:
                    changes[begin:] = [each for each in changes[begin:] if each.index in rows]
                if by_rules:
                    bring_under(
                        table.row_rules,
                        table.statement_rules,
                        changes,
                        begin,
                        database=table.database,
                        table=table.name,
                    )
                unmet = None if expectations is None else expectations.unmet(changes[begin:], table.label)
                if unmet is not None and unmet.action == "warn":
                    warnings.append((message, unmet))
                elif unmet is not None:
                    fault = unmet
            # Any error: one that no format should raise is also this record's, and stops no worker.
            except Exception as error:
                fault = fault_under(error, message, by_rules)
            if fault is not None:
                del changes[begin:]
                if not undecodable(message, fault):
                    return Decoded(changes, ends, fault)
            ends.append(len(changes))
    for message, warning in warnings:  # only now: after a fault, the records before it are decoded again
        undecodable(message, warning)
    return Decoded(changes, ends, None)


def _show_alike(chunk: Chunk, table: Table) -> bool:
    """Whether its changes are the same as by the table's present rules."""
    before = chunk.table
    # A statement is subject to the rules of all tables.
    return before is not None and not chunk.alone and table.rule.shows_as(before.rule)
