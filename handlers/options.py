"""What is wrong with options, in words: pydantic's errors and signatures as sentences for people."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from handlers.api import Handler

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["Explanation", "check_options", "explain", "nearest"]

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One fault of a mapping of options. It never holds a value: a value may be a secret."""

    path: KeyPath
    problem: Literal["value", "unknown key", "missing"]
    allowed: str
    """What is allowed there, as a phrase."""
    nearest: str | None = None
    """The spelling that was probably meant."""

    @property
    def message(self) -> str:
        """The fault as a sentence, without its path and value."""
        start = "" if self.problem == "value" else f"{self.problem}; "
        hint = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{start}allowed: {self.allowed}{hint}"


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "text that is not empty",
}
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "too_short": ("min_length", "a list of at least"),
    "too_long": ("max_length", "a list of at most"),
}


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that `word` was probably meant to be."""
    found = get_close_matches(word, list(words), n=1)
    return found[0] if found else None


def explain(errors: Iterable[ErrorDetails], model: type[BaseModel]) -> list[Explanation]:
    """Pydantic's errors of `model` as explanations, at most one for each key path, in their order."""
    explained: dict[KeyPath, Explanation] = {}
    for error in errors:
        # A consequence of an error that is reported itself.
        if error["type"] != "default_factory_not_called":
            one = _explain(error, model)
            explained.setdefault(one.path, one)
    return list(explained.values())


def check_options(handler: type[Handler], options: Mapping[str, Any]) -> list[Explanation]:
    """What is wrong with a handler's options; nothing when they can be given to it.

    Decided by `handler.options_model` where there is one, else by the signature of its `__init__`.
    """
    model = handler.options_model
    if model is None:
        return _check_signature(handler, options)
    try:
        model.model_validate(dict(options))
    except ValidationError as error:
        return explain(error.errors(include_url=False), model)
    return []


def _explain(error: ErrorDetails, model: type[BaseModel]) -> Explanation:
    kind, context = error["type"], error.get("ctx", {})
    path, owner = _locate(error["loc"], model)
    if kind == "missing":
        return Explanation(path, "missing", "required")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        keys = sorted(_keys(owner)) if owner is not None else []
        allowed = ", ".join(keys) if keys else "no options"
        return Explanation(path, "unknown key", allowed, nearest(str(path[-1]), keys))
    if kind == "not_allowed":
        return Explanation(path, "value", context["allowed"], context["nearest"])
    if kind in ("literal_error", "enum"):
        words = re.findall(r"'([^']*)'", str(context["expected"]))
        near = nearest(str(error["input"]), words)
        return Explanation(path, "value", ", ".join(words) or str(context["expected"]), near)
    if kind in _LIMITS:
        limit, words_before = _LIMITS[kind]
        return Explanation(path, "value", f"{words_before} {context[limit]}")
    return Explanation(path, "value", _TYPES.get(kind) or _sentence(error))


def _sentence(error: ErrorDetails) -> str:
    text = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return " ".join(text.replace(str(error["input"]), "it").split()) if error["input"] != "" else text


def _locate(location: KeyPath, model: type[BaseModel]) -> tuple[KeyPath, type[BaseModel] | None]:
    """The key path without pydantic's names of union members, and the model that holds its last key."""
    owner: type[BaseModel] | None = model
    path: list[str | int] = []
    annotation: Any = model
    for key in location:
        holder = _model_in(annotation)
        if holder is not None and not isinstance(key, int):
            owner = holder
            path.append(key)
            field = holder.model_fields.get(key) or _by_alias(holder, key)
            annotation = field.annotation if field else None
        elif isinstance(key, int) or holder is not None or annotation is None or _is_mapping(annotation):
            path.append(key)
    return tuple(path), owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _is_mapping(annotation: Any) -> bool:
    return "dict" in str(annotation) or "Mapping" in str(annotation)


def _by_alias(model: type[BaseModel], key: str) -> Any:
    return next((field for field in model.model_fields.values() if field.alias == key), None)


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _check_signature(handler: type[Handler], options: Mapping[str, Any]) -> list[Explanation]:
    parameters: list[inspect.Parameter] = []
    # The base class takes any option in order to refuse it with its name.
    if handler.__init__ is not Handler.__init__:
        parameters = list(inspect.signature(handler.__init__).parameters.values())[1:]
    kinds = inspect.Parameter
    named = {p.name: p for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    faults = [
        Explanation((name,), "missing", "required")
        for name, parameter in named.items()
        if parameter.default is kinds.empty and name not in options
    ]
    if not any(p.kind is kinds.VAR_KEYWORD for p in parameters):
        allowed = ", ".join(named) or "no options"
        faults += [
            Explanation((name,), "unknown key", allowed, nearest(name, named))
            for name in options
            if name not in named
        ]
    return faults
