"""Conditions on rows as in SQL's WHERE: `status <> 'draft' AND (total > 0 OR total IS NULL)`.

sqlglot parses them. Only the syntax listed in docs/columns.md is accepted. A condition is compiled to
functions of a row, once for rows with the same columns. It cannot call anything or loop, and its time is
bounded by its own length and that of its values. As in SQL, NULL is neither equal nor unequal to anything: a
condition is then neither true nor false."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from handlers.options.matching import folded, folded_all
from worker.column_rules.comparing import FilterFault, compared, like, truth
from worker.column_rules.values import Value, compiled, literal

_MOST_CHARACTERS = 10_000
_MOST_NODES = 1_000
_MOST_DEPTH = 100
_MOST_SHAPES = 256

Row = Mapping[str, Any]
Kinds = Mapping[str, tuple[str, str]]
"""Kind of a node -> where it is allowed (as a condition, as a value), and its allowed arguments."""
Condition = Callable[[Row], bool | None]
"""Evaluates a row that has the columns: True, False or None (unknown). Raises FilterFault."""


class FilterError(ValueError):
    """The text is not a valid condition. The message says what is wrong and what is allowed."""


class Filter:
    """A parsed condition."""

    def __init__(self, text: str, tree: Any) -> None:
        self.text = text
        self._tree = tree
        self.columns = columns_of(tree)
        """The source's columns in the condition, spelled as in its text."""
        self.on: Callable[[tuple[str, ...]], Condition | None] = lru_cache(_MOST_SHAPES)(self._on)
        """Returns the condition for rows with these columns; None if they lack one of its columns. Raises
        FilterFault if two fit one name of the condition, because they differ only in case."""

    @property
    def with_null(self) -> list[str]:
        """Return its comparisons with NULL, such as `a = NULL`, which are true for no row."""
        return [
            node.sql()
            for node in self._tree.walk()
            if kind_of(node) in _COMPARED and "Null" in (kind_of(node.this), kind_of(node.expression))
        ]

    def missing_of(self, columns: Iterable[str]) -> list[str]:
        """Return the condition's columns that a row with `columns` lacks."""
        there = folded_all(columns)
        return [name for name in self.columns if folded(name) not in there]

    def _on(self, columns: tuple[str, ...]) -> Condition | None:
        own: dict[str, str] = {}
        wanted = folded_all(self.columns)
        for name in columns:
            if (low := folded(name)) in wanted and own.setdefault(low, name) != name:
                raise FilterFault(f"filter: {own[low]} and {name} differ only in case")
        return condition_of(self._tree, own) if own.keys() == wanted else None


def read_filter(text: str) -> Filter:
    """Parse a condition. Raises FilterError."""
    tree = parsed(text)
    check(tree, CONDITIONS, ALLOWED, is_condition=True)
    return Filter(text, tree)


def columns_of(tree: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.name for node in tree.walk() if kind_of(node) == "Column"))


def parsed(text: str) -> Any:
    """Return the tree of a bounded text, which is not checked yet. Raises FilterError."""
    # Importing sqlglot takes a tenth of a second, which a worker without filters saves.
    import sqlglot  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    if len(text) > _MOST_CHARACTERS:
        raise FilterError(f"it has {len(text)} characters; at most {_MOST_CHARACTERS} are allowed")
    try:
        trees = sqlglot.parse(text)
    except (SqlglotError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _reason(error)
        raise FilterError(reason) from None
    if len(trees) != 1 or trees[0] is None:
        raise FilterError("it is empty, or has more than one condition")
    tree = trees[0]
    if len(list(islice(tree.walk(), _MOST_NODES + 1))) > _MOST_NODES:
        raise FilterError(f"it has more than {_MOST_NODES} parts")
    return tree


def _reason(error: Exception) -> str:
    """Describe where parsing failed. The parser's own message is about its code."""
    places = getattr(error, "errors", None)
    column = places[0].get("col") if places else None
    return "it cannot be read" if column is None else f"it cannot be read after character {column}"


def kind_of(tree: Any) -> str:
    return type(tree).__name__


_COMPARED = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
CONDITIONS: Kinds = {
    **dict.fromkeys((*_COMPARED, "And", "Or", "Is"), ("condition", "this expression")),
    "Not": ("condition", "this"),
    "In": ("condition", "this expressions negate"),
    "Between": ("condition", "this low high negate"),
    "Like": ("condition", "this expression negate"),
    **dict.fromkeys(("Column", "Boolean", "Null", "Paren"), ("condition value", "this")),
    "Literal": ("value", "this is_string"),
    **dict.fromkeys(("Neg", "Lower", "Upper"), ("value", "this")),
    "Coalesce": ("value", "this expressions"),
}
ALLOWED = (
    "allowed: columns, numbers, 'texts', TRUE, FALSE, NULL, = <> < <= > >=, IS [NOT] NULL, [NOT] IN (...), "
    "[NOT] BETWEEN ... AND, [NOT] LIKE, AND, OR, NOT, brackets, LOWER, UPPER, COALESCE"
)


def check(tree: Any, kinds: Kinds, allowed: str, depth: int = 0, *, is_condition: bool) -> None:
    """Raise FilterError if the tree contains anything that is not in `kinds`, which `allowed` describes."""
    kind = kind_of(tree)
    if depth > _MOST_DEPTH:
        raise FilterError(f"it is nested deeper than {_MOST_DEPTH}")
    given = {name for name, value in tree.args.items() if value not in (None, [], False)}
    stands_for, arguments = kinds.get(kind, ("", ""))
    what = "condition" if is_condition else "value"
    if what not in stands_for or not given <= {*arguments.split(), "is_string"}:
        text = tree.sql()
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise FilterError(
            f"{shown!r} is not allowed as a {what}; {allowed}; write other names in double quotes"
        )
    if kind == "Neg" and (tree.this.is_string or not (tree.this.is_number or "Sub" in kinds)):
        raise FilterError(f"only a number can be negative; {allowed}")
    if kind == "Is" and kind_of(tree.expression) not in ("Null", "Boolean"):
        raise FilterError(f"IS needs NULL, TRUE or FALSE; {allowed}")
    if kind == "In" and not tree.expressions:
        raise FilterError(f"IN needs a list of values; {allowed}")
    if kind == "Literal":
        try:
            literal(tree)
        except ArithmeticError:
            raise FilterError(f"{tree.this[:60]!r} is not a number; {allowed}") from None
    if kind in ("Column", "Literal", "Boolean", "Null"):
        return
    inner_is_condition = is_condition and kind in ("And", "Or", "Not", "Paren")
    for name in ("this", "expression", "low", "high", "default"):
        if (inner := tree.args.get(name)) is not None:
            check(inner, kinds, allowed, depth + 1, is_condition=inner_is_condition)
    choices = tree.args.get("ifs", ())  # only those of CASE: IF(...) is another function
    for inner in (*tree.args.get("expressions", ()), *(one.args["true"] for one in choices)):
        check(inner, kinds, allowed, depth + 1, is_condition=False)
    for one in choices:
        check(one.this, kinds, allowed, depth + 1, is_condition=True)


# ---- compilation to functions


def condition_of(tree: Any, own: Mapping[str, str]) -> Condition:
    made = _plain_condition(tree, own)
    return _not(made) if tree.args.get("negate") else made


def _plain_condition(tree: Any, own: Mapping[str, str]) -> Condition:  # noqa: PLR0911 - one for each kind
    kind = kind_of(tree)
    match kind:
        case "Paren":
            return condition_of(tree.this, own)
        case "And":
            return _joined(condition_of(tree.this, own), condition_of(tree.expression, own), decides=False)
        case "Or":
            return _joined(condition_of(tree.this, own), condition_of(tree.expression, own), decides=True)
        case "Not":
            return _not(condition_of(tree.this, own))
        case "Is":
            value = _value(tree.this, own)
            if kind_of(tree.expression) == "Null":
                return lambda row: value(row) is None
            wanted = bool(tree.expression.this)
            return lambda row: truth(value(row)) is wanted
        case "In":
            return _in(_value(tree.this, own), [_value(one, own) for one in tree.expressions])
        case "Between":
            value, low, high = (_value(tree.args[name], own) for name in ("this", "low", "high"))
            return _between(value, low, high)
        case "Like":
            value, pattern = _value(tree.this, own), _value(tree.expression, own)
            return lambda row: like(value(row), pattern(row))
        case "Column" | "Boolean" | "Null":
            value = _value(tree, own)
            return lambda row: truth(value(row))
    sign, left, right = _COMPARED[kind], _value(tree.this, own), _value(tree.expression, own)
    return lambda row: compared(sign, left(row), right(row))


def _value(tree: Any, own: Mapping[str, str]) -> Value:
    return compiled(tree, own, condition_of)


def _between(value: Value, low: Value, high: Value) -> Condition:
    def between(row: Row) -> bool | None:
        found = value(row)  # once, or nested ones would double the time at each level
        first = compared(">=", found, low(row))
        if first is False:
            return False
        second = compared("<=", found, high(row))
        return second if first or second is False else None

    return between


def _joined(left: Condition, right: Condition, *, decides: bool) -> Condition:
    """Compile AND (one False decides) or OR (one True decides)."""

    def joined(row: Row) -> bool | None:
        first = left(row)
        if first is decides:
            return decides
        second = right(row)
        return second if second is decides or first is not None else None

    return joined


def _not(inner: Condition) -> Condition:
    def opposite(row: Row) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return opposite


def _in(value: Value, others: Sequence[Value]) -> Condition:
    def found(row: Row) -> bool | None:
        own = value(row)
        results = [compared("=", own, other(row)) for other in others]
        return True if True in results else None if None in results else False

    return found
