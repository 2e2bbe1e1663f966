"""Conditions on rows as in SQL's WHERE: `status <> 'draft' AND (total > 0 OR total IS NULL)`.

sqlglot parses them. Only the syntax listed in docs/columns.md is accepted. A condition is compiled to
functions of a row, once for rows with the same columns. It cannot call anything or loop, and its time is
bounded by its own length and that of its values. As in SQL, NULL is neither equal nor unequal to anything: a
condition is then neither true nor false."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from handlers.values.bounds import bounded
from worker.column_rules.comparing import FilterFault, compared, like, truth

_MOST_CHARACTERS = 10_000
_MOST_NODES = 1_000
_MOST_DEPTH = 100

Row = Mapping[str, Any]
Value = Callable[[Row], Any]
Condition = Callable[[Row], bool | None]
"""Evaluates a row that has the columns: True, False or None (unknown). Raises FilterFault."""


class FilterError(ValueError):
    """The text is not a valid condition. The message says what is wrong and what is allowed."""


class Filter:
    """A parsed condition."""

    def __init__(self, text: str, tree: Any, columns: Iterable[str]) -> None:
        self.text = text
        self._tree = tree
        self.columns = tuple(dict.fromkeys(columns))
        """The source's columns in the condition, spelled as in its text."""

    @property
    def with_null(self) -> list[str]:
        """Return its comparisons with NULL, such as `a = NULL`, which are true for no row."""
        return [
            node.sql()
            for node in self._tree.walk()
            if _kind(node) in _COMPARED and "Null" in (_kind(node.this), _kind(node.expression))
        ]

    def missing_of(self, columns: Iterable[str]) -> list[str]:
        """Return the condition's columns that a row with `columns` lacks."""
        there = {name.casefold() for name in columns}
        return [name for name in self.columns if name.casefold() not in there]

    def on(self, columns: Sequence[str]) -> Condition:
        """Compile the condition for rows with `columns`. Raises FilterFault if two of these fit one name of
        the condition, because they differ only in case."""
        own: dict[str, str] = {}
        wanted = {name.casefold() for name in self.columns}
        for name in columns:
            low = name.casefold()
            if low in wanted and own.setdefault(low, name) != name:
                raise FilterFault(f"filter: {own[low]} and {name} differ only in case")
        return _condition(self._tree, own)


def read_filter(text: str) -> Filter:
    """Parse a condition. Raises FilterError."""
    # Importing sqlglot takes a tenth of a second, which a worker without filters saves.
    import sqlglot  # noqa: PLC0415
    from sqlglot import exp  # noqa: PLC0415
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
    _check(tree, 0)
    return Filter(text, tree, [column.name for column in tree.find_all(exp.Column)])


def _reason(error: Exception) -> str:
    """Describe where parsing failed. The parser's own message is about its code."""
    places = getattr(error, "errors", None)
    column = places[0].get("col") if places else None
    return "it cannot be read" if column is None else f"it cannot be read after character {column}"


def _kind(tree: Any) -> str:
    return type(tree).__name__


_COMPARED = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_KINDS: Mapping[str, tuple[str, str]] = {
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
"""Kind of a node -> where it is allowed (as a condition, as a value), and its allowed arguments."""
_ALLOWED = (
    "allowed: columns, numbers, 'texts', TRUE, FALSE, NULL, = <> < <= > >=, IS [NOT] NULL, [NOT] IN (...), "
    "[NOT] BETWEEN ... AND, [NOT] LIKE, AND, OR, NOT, brackets, LOWER, UPPER, COALESCE"
)


def _check(tree: Any, depth: int, *, is_condition: bool = True) -> None:
    """Raise FilterError if the tree contains anything that is not listed."""
    kind = _kind(tree)
    if depth > _MOST_DEPTH:
        raise FilterError(f"it is nested deeper than {_MOST_DEPTH}")
    given = {name for name, value in tree.args.items() if value not in (None, [], False)}
    stands_for, arguments = _KINDS.get(kind, ("", ""))
    what = "condition" if is_condition else "value"
    if what not in stands_for or not given <= {*arguments.split(), "is_string"}:
        text = tree.sql()
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise FilterError(
            f"{shown!r} is not allowed as a {what}; {_ALLOWED}; write other names in double quotes"
        )
    if kind == "Neg" and _kind(tree.this) != "Literal":
        raise FilterError(f"only a number can be negative; {_ALLOWED}")
    if kind == "Is" and _kind(tree.expression) not in ("Null", "Boolean"):
        raise FilterError(f"IS needs NULL, TRUE or FALSE; {_ALLOWED}")
    if kind == "In" and not tree.expressions:
        raise FilterError(f"IN needs a list of values; {_ALLOWED}")
    if kind == "Literal":
        try:
            _literal(tree)
        except ArithmeticError:
            raise FilterError(f"{tree.this[:60]!r} is not a number; {_ALLOWED}") from None
    if kind in ("Column", "Literal", "Boolean", "Null"):
        return
    inner_is_condition = is_condition and kind in ("And", "Or", "Not", "Paren")
    for name in ("this", "expression", "low", "high"):
        inner = tree.args.get(name)
        if inner is not None:
            _check(inner, depth + 1, is_condition=inner_is_condition)
    for inner in tree.args.get("expressions") or ():
        _check(inner, depth + 1, is_condition=False)


# ---- compilation to functions


def _condition(tree: Any, own: Mapping[str, str]) -> Condition:
    made = _plain_condition(tree, own)
    return _not(made) if tree.args.get("negate") else made


def _plain_condition(tree: Any, own: Mapping[str, str]) -> Condition:  # noqa: PLR0911 - one for each kind
    kind = _kind(tree)
    match kind:
        case "Paren":
            return _condition(tree.this, own)
        case "And":
            return _joined(_condition(tree.this, own), _condition(tree.expression, own), decides=False)
        case "Or":
            return _joined(_condition(tree.this, own), _condition(tree.expression, own), decides=True)
        case "Not":
            return _not(_condition(tree.this, own))
        case "Is":
            value = _value(tree.this, own)
            if _kind(tree.expression) == "Null":
                return lambda row: value(row) is None
            wanted = bool(tree.expression.this)
            return lambda row: truth(value(row)) is wanted
        case "In":
            return _in(_value(tree.this, own), [_value(one, own) for one in tree.expressions])
        case "Between":
            value, low, high = (_value(tree.args[name], own) for name in ("this", "low", "high"))
            return _joined(_comparison(">=", value, low), _comparison("<=", value, high), decides=False)
        case "Like":
            value, pattern = _value(tree.this, own), _value(tree.expression, own)
            return lambda row: like(value(row), pattern(row))
        case "Column" | "Boolean" | "Null":
            value = _value(tree, own)
            return lambda row: truth(value(row))
    return _comparison(_COMPARED[kind], _value(tree.this, own), _value(tree.expression, own))


def _value(tree: Any, own: Mapping[str, str]) -> Value:  # noqa: PLR0911 - one return for each kind
    match _kind(tree):
        case "Paren":
            return _value(tree.this, own)
        case "Column":
            name = own[tree.name.casefold()]
            return lambda row: row[name]
        case "Literal" | "Neg":
            literal = _literal(tree)
            return lambda _row: literal
        case "Boolean":
            flag = bool(tree.this)
            return lambda _row: flag
        case "Null":
            return lambda _row: None
        case "Coalesce":
            values = [_value(one, own) for one in (tree.this, *tree.expressions)]
            return lambda row: next((found for one in values if (found := one(row)) is not None), None)
    inner, change = _value(tree.this, own), str.lower if _kind(tree) == "Lower" else str.upper
    return lambda row: _changed(inner(row), change)


def _changed(value: Any, change: Callable[[str], str]) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else change(value)
    raise FilterFault(f"filter: LOWER and UPPER need text, not {type(value).__name__}")


def _literal(tree: Any) -> Any:
    if _kind(tree) == "Neg":
        return -_literal(tree.this)
    if tree.is_string:
        return tree.this
    number = bounded(Decimal(tree.this))
    return int(number) if number == number.to_integral_value() else number


def _comparison(sign: str, left: Value, right: Value) -> Condition:
    return lambda row: compared(sign, left(row), right(row))


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
