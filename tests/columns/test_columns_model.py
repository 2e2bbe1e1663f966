"""Column rules against a naive model: whatever a source does, a target that applies what handlers see holds
what the rules say of the source's rows, and nothing else ever leaves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruling import SECRET, changes_of, hashed, rule_of, ruled
from structlog.testing import capture_logs

from handlers import Change
from handlers.values.change_json import line

Row = dict[str, Any]
COLUMNS = ("email", "state", "age", "note")
HIDDEN = "hidden-"
"""Begins every value that must not leave."""


@dataclass
class Source:
    """A table with the key `id`, and what its change capture writes."""

    images: str
    """Of old rows: `whole`, `none`, or `nulls`: the key, and NULL for all else."""
    rows: dict[int, Row] = field(default_factory=dict)
    count: int = 0

    def row(self, number: int, state: str | None) -> Row:
        self.count += 1
        hidden = f"{HIDDEN}{self.count}"
        return {"id": number, "email": hidden, "state": state, "age": self.count, "note": hidden}

    def old(self, row: Row) -> Row | None:
        if self.images == "none":
            return None
        return (
            dict(row)
            if self.images == "whole"
            else {name: row[name] if name == "id" else None for name in row}
        )

    def put(self, number: int, state: str | None) -> Iterator[Row]:
        known, row = self.rows.get(number), self.row(number, state)
        self.rows[number] = row
        if known is None:
            yield {"op": "insert", "after": row}
        else:
            old = self.old(known)
            told = {"before_is_whole": self.images == "whole", "lacks": frozenset()}
            yield {"op": "update", "before": old, "after": row, **told}

    def upsert(self, number: int, state: str | None) -> Iterator[Row]:
        """A source that does not tell an insert from an update, as the format json."""
        row = self.rows[number] = self.row(number, state)
        yield {"op": "insert", "after": row}

    def slip(self, number: int, state: str | None) -> Iterator[Row]:
        """A change that the log lost, and a snapshot that mends the table."""
        if number in self.rows:
            self.rows[number] = self.row(number, state)
        yield from self.snapshot()

    def drop(self, number: int) -> Iterator[Row]:
        known = self.rows.pop(number, None)
        if known is not None:
            # A deleted row's key is there in any case.
            old = self.old(known) or {"id": number}
            yield {"op": "delete", "before": old, "after": None, "before_is_whole": self.images == "whole"}

    def move(self, number: int, to: int) -> Iterator[Row]:
        if number in self.rows and to not in self.rows:
            yield from self.drop(number)
            yield from self.put(to, "paid")

    def snapshot(self) -> Iterator[Row]:
        for row in self.rows.values():
            yield {"op": "snapshot", "after": dict(row)}

    def truncate(self) -> Iterator[Row]:
        self.rows.clear()
        yield {"op": "truncate", "sql": "TRUNCATE TABLE users /* hidden-comment */"}


class Target:
    """As every target applies changes: by key, what is not sent stays as it was."""

    def __init__(self, key: str) -> None:
        self.rows: dict[Any, Row] = {}
        self._key = key

    def apply(self, change: Change) -> None:
        if change.op == "truncate":
            self.rows.clear()
            return
        assert change.key is not None
        key = change.key[self._key]
        if change.op == "delete":
            self.rows.pop(key, None)
        elif change.op == "update":
            self.rows.setdefault(key, {}).update({**(change.before or {}), **(change.after or {})})
        else:
            self.rows[key] = dict(change.after or {})


COLUMN_RULES: list[tuple[Row, dict[str, Any]]] = [
    # the configuration, and what of a row leaves: name -> function of the source's row
    (
        {"exclude": ["EMAIL", "note"], "rename": {"age": "years"}},
        {"id": lambda row: row["id"], "state": lambda row: row["state"], "years": lambda row: row["age"]},
    ),
    (
        {"include": ["id", "state", "email"], "mask": {"email": "hash", "id": "hash"}},
        {
            "id": lambda row: hashed(row["id"]),
            "state": lambda row: row["state"],
            "email": lambda row: hashed(row["email"]),
        },
    ),
    (
        {
            "mask": {"email": {"partial": {"first": 2}}, "note": None},
            "rename": {"id": "number", "email": "state", "state": "email"},
            "cast": {"age": "text"},
            "add": {"source": "topic"},
        },
        {
            "number": lambda row: row["id"],
            "state": lambda row: row["email"][:2] + "***",
            "email": lambda row: row["state"],
            "age": lambda row: str(row["age"]),
            "note": lambda _: None,
            "source": lambda _: "test",
        },
    ),
    (
        {
            "exclude": ["email"],
            "rename": {"age": "years"},
            "mask": {"note": None},
            "add": {"half": "round(age / 2, 1)", "age": "COALESCE(state, '-') || age", "old": "age > 5"},
        },
        {
            "id": lambda row: row["id"],
            "state": lambda row: row["state"],
            "years": lambda row: row["age"],
            "note": lambda _: None,
            "half": lambda row: Decimal(row["age"]) / 2,
            "age": lambda row: (row["state"] or "-") + str(row["age"]),
            "old": lambda row: int(row["age"] > 5),
        },
    ),
    (
        {"mask": {"email": "redact", "note": {"hash": {"secret": SECRET}}}},
        {
            "id": lambda row: row["id"],
            "email": lambda _: "***",
            "state": lambda row: row["state"],
            "age": lambda row: row["age"],
            "note": lambda row: hashed(row["note"]),
        },
    ),
]
FILTERS: list[tuple[str | None, Any]] = [
    (None, lambda row: True),
    ("state <> 'draft'", lambda row: row["state"] not in (None, "draft")),
    ("State = 'paid' OR state IS NULL", lambda row: row["state"] in (None, "paid")),
    ("NOT (state IN ('draft', 'gone'))", lambda row: row["state"] not in (None, "draft", "gone")),
]

NUMBERS = st.integers(1, 4)
STATES = st.sampled_from(("paid", "draft", "gone", None))
STEPS = st.one_of(
    st.tuples(st.sampled_from(("put", "upsert", "slip")), NUMBERS, STATES),
    st.tuples(st.just("drop"), NUMBERS),
    st.tuples(st.just("move"), NUMBERS, NUMBERS),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("truncate")),
)


LIFE: list[tuple[Any, ...]] = [
    # Taken, changed, not any more, again, under another key, gone; never taken, gone.
    *(("put", 1, state) for state in ("paid", "paid", "draft", "gone", None, "paid")),
    *(("move", 1, 2), ("put", 3, "draft"), ("snapshot",), ("drop", 2), ("put", 2, "draft"), ("drop", 3)),
    *(("put", 4, "paid"), ("truncate",), ("put", 4, "paid")),
    # Leaves by an upsert, and by a second snapshot.
    *(("upsert", 4, "draft"), ("upsert", 4, "paid"), ("slip", 4, "gone"), ("slip", 4, "paid")),
]


def examples(test: Any) -> Any:
    """The life of a row, under all that can be combined."""
    for columns, filter_, images in itertools.product(COLUMN_RULES, FILTERS, ("whole", "none", "nulls")):
        test = example(steps=LIFE, columns=columns, filter_=filter_, images=images, deletes="apply")(test)
    return test


@examples
@given(
    steps=st.lists(STEPS, max_size=25),
    columns=st.sampled_from(COLUMN_RULES),
    filter_=st.sampled_from(FILTERS),
    images=st.sampled_from(("whole", "none", "nulls")),
    deletes=st.sampled_from(("apply", "ignore")),
)
def test_a_target_holds_what_the_rules_say_and_nothing_else_leaves(
    steps: list[tuple[Any, ...]],
    columns: tuple[Row, dict[str, Any]],
    filter_: tuple[str | None, Any],
    images: str,
    deletes: str,
) -> None:
    settings, leaving = columns
    text, takes = filter_
    rule = rule_of(columns=settings, deletes=deletes, **({} if text is None else {"filter": text}))
    source, target = Source(images), Target("number" if "number" in leaving else "id")
    kept: dict[Any, Row] = {}
    for step in steps:
        told = list(getattr(source, step[0])(*step[1:]))
        for change in ruled(rule, changes_of(*told)):
            assert HIDDEN not in line(change, "shop", "users").decode()
            target.apply(change)
        own = "number" if "number" in leaving else "id"
        now = {
            made[own]: made
            for row in source.rows.values()
            if takes(row)
            for made in [{name: of(row) for name, of in leaving.items()}]
        }
        kept = now if deletes == "apply" else {**kept, **now}
        assert target.rows == kept


@given(steps=st.lists(STEPS.filter(lambda step: step[0] != "truncate"), max_size=25))
def test_marked_rows_stay_with_their_mark_until_they_come_again(steps: list[tuple[Any, ...]]) -> None:
    rule = rule_of(columns={"exclude": ["email", "note"]}, deletes="mark", deleted_column="gone_at")
    source, target, ever = Source("whole"), Target("id"), set()
    for step in steps:
        told = list(getattr(source, step[0])(*step[1:]))
        ever |= set(source.rows)
        for change in ruled(rule, changes_of(*told)):
            assert change.op != "delete"
            target.apply(change)
        assert set(target.rows) == ever
        for number, row in target.rows.items():
            assert (row["gone_at"] is None) is (number in source.rows)


@given(old=STATES, new=STATES, images=st.sampled_from(("whole", "none", "nulls")))
def test_a_row_that_enters_the_filter_leaves_nothing_of_what_it_was(
    old: str | None, new: str | None, images: str
) -> None:
    """Nor does a row that was never taken, but for its key."""
    rule = rule_of(filter="state = 'paid'")
    source = Source(images)
    told = [*source.put(1, old), *source.put(1, new), *source.drop(1)]
    first, second = ({f"{HIDDEN}{count}"} for count in (1, 2))
    left = "".join(line(change, "shop", "users").decode() for change in ruled(rule, changes_of(*told)))
    for values, state in ((first, old), (second, new)):
        if state != "paid":
            assert not any(value in left for value in values)


def test_a_row_without_a_key_that_enters_the_filter_is_inserted() -> None:
    """No target could find it by an update without its old row; sources without types send these, too."""
    told = {"op": "update", "before": {"state": "draft", "age": 1}, "after": {"state": "paid", "age": 1}}
    [change] = ruled(rule_of(filter="state = 'paid'"), changes_of(told, key=None))
    assert (change.op, change.before, change.after) == ("insert", None, told["after"])


@pytest.mark.parametrize("is_typed", [True, False])
def test_a_rule_of_a_column_that_the_table_has_not_is_told_once(is_typed: bool) -> None:
    rule = rule_of(columns={"exclude": ["ssm", "note"]})
    types = {"id": "int", "ssn": "int", "note": "text"}
    more: dict[str, Any] = {"types": types} if is_typed else {}
    with capture_logs() as logs:
        for _ in range(2):
            ruled(rule, changes_of({"id": 1, "ssn": 2, "note": "x"}, **more))
    told = [(one["column"], one["nearest"]) for one in logs if one["event"] == "column_rule_without_column"]
    assert told == [("ssm", "ssn")]


def test_a_rule_whose_column_goes_is_told_then() -> None:
    rule = rule_of(columns={"exclude": ["ssn"]})
    with capture_logs() as logs:
        ruled(rule, changes_of({"id": 1, "ssn": 2}, types={"id": "int", "ssn": "int"}))
        assert not logs
        ruled(rule, changes_of({"id": 1, "ssn2": 2}, types={"id": "int", "ssn2": "int"}))
    assert [one["column"] for one in logs] == ["ssn"]
