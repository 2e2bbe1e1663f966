"""Values of expressions, compiled from sqlglot's tree to functions of a row. NULL in, NULL out.

Numbers are exact: a float counts as its shortest decimal, and a result of more than 1,000 digits is an error.
Only a division is rounded, at its 100th digit. So results of divisions can be added and multiplied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from functools import partial
from typing import Any

from handlers.options.matching import folded
from handlers.values.bounds import bounded
from worker.column_rules.comparing import NUMBERS, FilterFault, compared, kind_named
from worker.column_rules.forms import Cast, cast_of, number_of

Value = Callable[[Mapping[str, Any]], Any]
Conditions = Callable[[Any, Mapping[str, str]], Value]

_WIDE = Context(prec=200)
_QUOTIENT = Context(prec=100)
_EXACT = Context(prec=1000, traps=[DivisionByZero, Inexact, InvalidOperation, Overflow])


def compiled(  # noqa: PLR0911 - one return for each kind
    tree: Any, own: Mapping[str, str], condition: Conditions
) -> Value:
    """Return the function of a row that evaluates the tree. It raises FilterFault.

    `own`: a column's name in lower case -> its name in the row. `condition` compiles conditions."""
    match kind := type(tree).__name__:
        case "Column":
            name = own[folded(tree.name)]
            return lambda row: row[name]
        case "Literal" | "Boolean" | "Null" | "Neg" if kind != "Neg" or tree.is_number:
            constant = literal(tree)
            return lambda _row: constant
        case "Nullif":
            one, other = (compiled(each, own, condition) for each in (tree.this, tree.expression))
            return lambda row: None if compared("=", found := one(row), other(row)) else found
        case "Coalesce":
            values = [compiled(one, own, condition) for one in (tree.this, *tree.expressions)]
            return lambda row: next((found for one in values if (found := one(row)) is not None), None)
        case "Case":
            return _case(tree, own, condition)
    if (function := _function_of(tree)) is None:
        return condition(tree, own)
    parts = tree.flatten() if kind == "DPipe" else filter(None, map(tree.args.get, ("this", "expression")))
    return _strict(function, *(compiled(one, own, condition) for one in parts))


def literal(tree: Any) -> Any:
    """Return the value of a literal, or of a negative number. Raises ArithmeticError if it is no number."""
    match type(tree).__name__:
        case "Neg":
            return -literal(tree.this)
        case "Boolean" | "Null":
            return bool(tree.this) if tree.this is not None else None
    if tree.is_string:
        return tree.this
    number = bounded(Decimal(tree.this))
    return int(number) if number == number.to_integral_value() else number


def cast_in(tree: Any) -> Cast | None:
    """Return the cast that a ROUND, DATE, CAST, ||, LOWER or UPPER makes; None for others."""
    match type(tree).__name__:
        case "Round":
            places = tree.args.get("decimals")
            return cast_of(f"decimal(38,{'0' if places is None else places})")
        case "Cast":
            type_ = str(tree.args["to"]).lower()
            return cast_of("integer" if type_ == "int" else type_)
        case "Date":
            return cast_of("date")
        case "DPipe" | "Lower" | "Upper":
            return cast_of("text")
    return None


def cast(to: Cast, value: Any) -> Any:
    """Cast a value that is not NULL. Raises FilterFault."""
    try:
        return to.convert(value)
    except (ValueError, ArithmeticError, TypeError):
        raise FilterFault(f"{kind_named(value)} does not fit {to.type}") from None


def _strict(function: Callable[..., Any], *parts: Value) -> Value:
    def value(row: Mapping[str, Any]) -> Any:
        values = [part(row) for part in parts]
        return None if any(one is None for one in values) else function(*values)

    return value


def _case(tree: Any, own: Mapping[str, str], condition: Conditions) -> Value:
    of = partial(compiled, own=own, condition=condition)
    choices = [(condition(one.this, own), of(one.args["true"])) for one in tree.args["ifs"]]
    default = of(tree.args["default"]) if tree.args.get("default") else lambda _row: None

    def value(row: Mapping[str, Any]) -> Any:
        return next((one for is_met, one in choices if is_met(row) is True), default)(row)

    return value


def _calculated(operation: Callable[..., Decimal], *values: Any) -> Decimal:
    for value in values:
        if not isinstance(value, NUMBERS):
            raise FilterFault(f"a calculation needs numbers, not {kind_named(value)}; CAST reads texts")
    try:
        return operation(*map(number_of, values))
    except ZeroDivisionError:
        raise FilterFault("division by zero: with NULLIF(x, 0), the result is NULL") from None
    except (ArithmeticError, ValueError):
        raise FilterFault("the result of a calculation has too many digits, or is not a number") from None


def _divide(one: Decimal, other: Decimal) -> Decimal:
    if not other:
        raise ZeroDivisionError
    return _QUOTIENT.divide(one, other)


def _cased(change: Callable[[str], str], value: Any) -> str:
    if isinstance(value, str):
        return change(value)
    raise FilterFault(f"filter: LOWER and UPPER need text, not {type(value).__name__}")


_CALCULATIONS: Mapping[str, Callable[..., Decimal]] = {
    "Add": _EXACT.add,
    "Sub": _EXACT.subtract,
    "Mul": _EXACT.multiply,
    "Div": _divide,
    "Neg": _EXACT.minus,
    "Abs": _EXACT.abs,
}


def _function_of(tree: Any) -> Callable[..., Any] | None:
    """Return the function of its arguments, none of which is NULL; None if it is a condition."""
    kind, to = type(tree).__name__, cast_in(tree)
    if kind in _CALCULATIONS:
        return partial(_calculated, _CALCULATIONS[kind])
    match kind:
        case "Paren":
            return lambda value: value
        case "Lower" | "Upper":
            return partial(_cased, str.lower if kind == "Lower" else str.upper)
        case "Round":
            unit = Decimal(1).scaleb(-int(str(tree.args.get("decimals") or 0)))
            return partial(_calculated, lambda value: value.quantize(unit, ROUND_HALF_UP, _WIDE))
        case "DPipe" if to is not None:
            return lambda *values: "".join(cast(to, one) for one in values)
    return None if to is None else partial(cast, to)
