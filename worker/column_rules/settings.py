"""The settings `columns` (of a table) and `masking`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from handlers.options.faults import nearest
from handlers.options.matching import folded, folded_all
from handlers.options.shared import Section
from handlers.options.values import not_allowed
from worker.column_rules.computed import Expression, read_expression
from worker.column_rules.filters import FilterError, read_filter
from worker.column_rules.forms import CAST_NAMES, WORDS, cast_of

LEAST_SECRET = 16
"""Least bytes of a secret. Shorter ones could be found by trying all."""

_MASKS = "hash, redact, null, {hash: {secret: ...}} or {partial: {first: 1, last: 4}}"
_PLAIN_MASKS = ("hash", "redact", "null")


def _secret(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) < LEAST_SECRET:
        raise not_allowed(f"a text of at least {LEAST_SECRET} bytes, such as ${{file:/run/secrets/masking}}")
    return value


Secret = Annotated[
    str, PlainValidator(_secret), WithJsonSchema({"type": "string", "minLength": LEAST_SECRET})
]


class MaskingRule(Section):
    """Settings shared by the masks of all tables."""

    secret: Secret | None = Field(default=None, repr=False)
    """Secret for hashing values (`mask: {email: hash}`): at least 16 bytes, never shown."""


class MaskRule(Section):
    """How a column's values are masked."""

    kind: Literal["hash", "redact", "partial", "null"]
    """hash: an HMAC-SHA-256; redact: ***; partial: some characters; null: nothing."""
    secret: Secret | None = Field(default=None, repr=False)
    """For a hash: its own secret instead of masking.secret."""
    first: int = Field(default=0, ge=0, le=1000)
    """For a partial mask: number of visible characters at the beginning."""
    last: int = Field(default=0, ge=0, le=1000)
    """For a partial mask: number of visible characters at the end."""


def _mask(value: object) -> Any:
    if isinstance(value, MaskRule):
        return value
    if value is None:  # YAML's own null
        value = "null"
    if value in _PLAIN_MASKS:
        return {"kind": value}
    if isinstance(value, Mapping) and len(value) == 1:
        [(kind, inside)] = value.items()
        known = {"hash": {"secret"}, "partial": {"first", "last"}}.get(kind)
        if known and isinstance(inside, Mapping) and inside and inside.keys() <= known:
            if kind == "partial" and not any(inside.values()):
                raise not_allowed("a partial mask with a visible part, such as {partial: {last: 4}}")
            return {"kind": kind, **inside}
    if value == "partial":
        raise not_allowed("a partial mask with a visible part, such as {partial: {last: 4}}")
    raise not_allowed(_MASKS, nearest(value, _PLAIN_MASKS) if isinstance(value, str) else None)


Mask = Annotated[
    MaskRule,
    BeforeValidator(_mask),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [*_PLAIN_MASKS, None]},
                {"type": "object", "properties": {"hash": {"type": "object"}}, "required": ["hash"]},
                {"type": "object", "properties": {"partial": {"type": "object"}}, "required": ["partial"]},
            ]
        }
    ),
]


def _cast(value: object) -> str:
    if not isinstance(value, str) or cast_of(value) is None:
        names = [name for name in CAST_NAMES if "(" not in name]
        raise not_allowed(", ".join(CAST_NAMES), nearest(value, names) if isinstance(value, str) else None)
    return value


Cast = Annotated[str, PlainValidator(_cast), WithJsonSchema({"type": "string"})]


def _added(value: object) -> Any:
    if isinstance(value, str) and value in WORDS:
        return value
    if isinstance(value, Mapping) and value.keys() == {"value"}:
        if isinstance(value["value"], str | int | float | bool):
            return dict(value)
        raise not_allowed("{value: ...} with a text, a number, true or false")
    words = f"{', '.join(WORDS)}, {{value: ...}}, or an expression such as round(total * 0.92, 2)"
    if not isinstance(value, str):
        raise not_allowed(words)
    try:
        read_expression(value)
    except FilterError as error:
        raise not_allowed(f"{words}; {error}", nearest(value, WORDS)) from None
    return value


_TEXT_OR_MAPPING = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
Added = Annotated[Any, PlainValidator(_added), _TEXT_OR_MAPPING]


def _filter(value: object) -> str:
    if not isinstance(value, str):
        raise not_allowed("a condition on the row, such as status <> 'draft' AND total > 0")
    try:
        read_filter(value)
    except FilterError as error:
        raise not_allowed(f"a condition on the row; {error}") from None
    return value


FilterText = Annotated[str | None, PlainValidator(_filter), WithJsonSchema({"type": "string"})]


class ExpectRule(Section):
    """A condition that rows should meet."""

    check: Annotated[str, PlainValidator(_filter), WithJsonSchema({"type": "string"})]
    """A condition on the row as handlers get it, like SQL's CHECK: unknown is met. Deletes are not judged."""
    on_failure: Literal["warn", "dead_letter", "halt"] = "warn"
    """What happens to a row for which it is false. warn: a line in the log, and handlers get the row."""


Expectation = Annotated[
    ExpectRule,
    BeforeValidator(lambda value: {"check": value} if isinstance(value, str) else value),
    _TEXT_OR_MAPPING,
]


def _given(value: object) -> object:
    if not isinstance(value, list):  # null is refused too: an empty key would include all columns
        raise not_allowed("a list of columns")
    return value


Included = Annotated[
    Annotated[list[str], Field(min_length=1)] | None,
    BeforeValidator(_given),
    WithJsonSchema({"items": {"type": "string"}, "minItems": 1, "type": "array"}),
]


class ColumnRules(Section):
    """Rules for a table's columns. All names are the source's, and case is ignored. The exceptions are the
    new names in `rename` and `add`."""

    include: Included = None
    """Columns that handlers get. By default, all."""
    exclude: list[str] = Field(default=[])
    """Columns that handlers do not get."""
    rename: dict[str, Annotated[str, Field(min_length=1)]] = Field(default={})
    """Column -> its name for handlers."""
    mask: dict[str, Mask] = Field(default={})
    """Column -> hash, redact, null, {hash: {secret: ...}} or {partial: {first: 1, last: 4}}."""
    cast: dict[str, Cast] = Field(default={})
    """Column -> text, integer, decimal(12,2), double, boolean, date, datetime or timestamp."""
    add: dict[str, Added] = Field(default={})
    """New column -> now(), source_time, topic, partition, offset, op, database, table, transaction,
    {value: ...}, or an expression such as round(total * 0.92, 2)."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.include is not None and self.exclude:
            raise _refused("include and exclude cannot be combined: remove one of the two")
        for key in ("include", "exclude", "rename", "mask", "cast", "add"):
            _refuse_twice(key, getattr(self, key) or ())
        masked = folded_all(self.mask)
        for key in ("rename", "mask", "cast"):
            for name in getattr(self, key):
                if where := self._leaves_out(name):
                    raise _refused(f"{key} names {name}, which {where} leaves out: change one of the two")
                if key == "cast" and folded(name) in masked:
                    raise _refused(f"mask and cast both name {name}: the mask sets the type; remove one")
        _refuse_twice("rename and add give", [*self.rename.values(), *self.add])
        own = folded_all(self.add) - folded_all(self.rename)
        for added, expression in self.expressions.items():
            for name in expression.columns:
                if self._leaves_out(name) or folded(name) in masked:
                    raise _refused(
                        f"add: {added} reads {name}, which is left out or masked: it would show its values"
                    )
                if folded(name) in own:
                    raise _refused(f"add: {added} reads {name}, which add itself adds: give it another name")
        return self

    @property
    def expressions(self) -> dict[str, Expression]:
        """The computed columns."""
        texts = {name: what for name, what in self.add.items() if isinstance(what, str) and what not in WORDS}
        return {name: read_expression(text) for name, text in texts.items()}

    def unseen(self, column: str) -> str | None:
        """Return why handlers get no column of this name; None if they may get one."""
        low = folded(column)
        renamed = {folded(name): to for name, to in self.rename.items()}
        if low in folded_all((*self.add, *renamed.values())):
            return None
        if low in renamed:
            return f"which columns.rename gives the name {renamed[low]}"
        return "which columns leaves out" if self._leaves_out(column) else None

    def _leaves_out(self, column: str) -> str:
        """Return the key that leaves the column out; empty if none does."""
        if self.include is not None and folded(column) not in folded_all(self.include):
            return "include"
        return "exclude" if folded(column) in folded_all(self.exclude) else ""

    @property
    def unkeyed(self) -> Iterator[str]:
        """The columns that are hashed with masking.secret, because their masks have no own secret."""
        return (name for name, mask in self.mask.items() if mask.kind == "hash" and mask.secret is None)

    @property
    def named(self) -> list[str]:
        """The source's columns that the rules name."""
        return list(
            dict.fromkeys(
                [
                    *(self.include or ()),
                    *(*self.exclude, *self.rename, *self.mask, *self.cast),
                    *(name for one in self.expressions.values() for name in one.columns),
                ]
            )
        )

    @property
    def is_empty(self) -> bool:
        return self == ColumnRules()


def _refused(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("value_error", "{sentence}", {"sentence": sentence, "error": sentence})


def _refuse_twice(key: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if (low := folded(name)) in seen:
            raise _refused(f"{key}: {name} is listed twice; case is ignored here")
        seen.add(low)
