"""Messages about faulty options, made from pydantic's errors and from signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from handlers.api import Handler

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One fault of a mapping of options."""

    path: KeyPath
    problem: Literal["value", "unknown key", "missing", "refused"]
    allowed: str
    """The allowed values, as a phrase without the value. If the value is refused: the model's own sentence,
    which may repeat the value. If it is missing: when it is required, unless it always is."""
    nearest: str | None = None
    """The probably intended spelling, derived from the value."""

    @property
    def message(self) -> str:
        """Describe the fault in a sentence, without its path."""
        if self.problem == "missing":
            return f"missing; required {self.allowed}".rstrip()
        if self.problem == "refused":
            return self.allowed
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

# Texts that YAML 1.1 read as booleans, and quoted booleans.
_SWITCHES = {
    **dict.fromkeys(("yes", "on", "y", "true"), "true"),
    **dict.fromkeys(("no", "off", "n", "false"), "false"),
}


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the entry of `words` that `word` probably means, or None. Case is ignored."""
    by_fold = {each.casefold(): each for each in words}
    found = get_close_matches(word.casefold(), list(by_fold), n=1)
    return by_fold[found[0]] if found else None


def explain(errors: Iterable[ErrorDetails], model: type[BaseModel]) -> list[Explanation]:
    """Turn pydantic's errors about `model` into explanations, in order, at most one for each key path."""
    explained: dict[KeyPath, Explanation] = {}
    for error in errors:
        # This one follows from another error, which is reported itself.
        if error["type"] != "default_factory_not_called":
            one = _explain(error, model)
            explained.setdefault(one.path, one)
    return list(explained.values())


def check_options(
    handler: type[Handler], options: Mapping[str, Any], *, of_file: bool = False
) -> list[Explanation]:
    """List the faults of a handler's options; the list is empty if the handler accepts them.

    `handler.options_model` decides, or the signature of `__init__` if the handler has no model. `of_file`:
    the options are from a file, so durations and sizes must have a unit."""
    if handler.options_model is None:
        return _check_signature(handler, options)
    return check_model(handler.options_model, options, of_file=of_file)


def check_model(
    model: type[BaseModel], options: Mapping[str, Any], *, of_file: bool = False
) -> list[Explanation]:
    """List the faults of options that `model` describes. `of_file`: see `check_options`."""
    try:
        model.model_validate(dict(options), context={"file": of_file})
    except ValidationError as error:
        return explain(error.errors(include_url=False), model)
    return []


def _explain(error: ErrorDetails, model: type[BaseModel]) -> Explanation:
    kind = error["type"]
    path, owner, annotation = _locate(error["loc"], model)
    path += error.get("ctx", {}).get("below", ())
    if kind == "missing":
        return Explanation(path, "missing", error.get("ctx", {}).get("when", ""))
    if kind in ("extra_forbidden", "invalid_key"):
        keys = sorted(one.alias or name for name, one in owner.model_fields.items()) if owner else []
        near = nearest(str(path[-1]), keys) if path else None
        return Explanation(path, "unknown key", ", ".join(keys) or "no options", near)
    allowed, near = _allowed(error)
    if allowed is None:
        sentence = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return Explanation(path, "refused", " ".join(sentence.split()))
    return Explanation(path, "value", allowed + _more(error, annotation), near)


def _more(error: ErrorDetails, annotation: Any) -> str:
    """Describe what a mapping or list must contain, and whether null is allowed."""
    kind, holder = error["type"], _model_in(annotation)
    text = ""
    if kind in ("model_type", "model_attributes_type") and holder is not None:
        fields = sorted(holder.model_fields.items(), key=lambda each: not each[1].is_required())
        text = f" with the keys {', '.join(field.alias or name for name, field in fields)}"
    elif kind == "list_type" and isinstance(error["input"], Mapping):
        text = ", each entry after a dash"
    is_mapping_or_list = kind in ("model_type", "model_attributes_type", "dict_type", "list_type")
    return text + ("; or null" if is_mapping_or_list and type(None) in get_args(annotation) else "")


def _allowed(error: ErrorDetails) -> tuple[str | None, str | None]:
    """Return what is allowed and what was meant; (None, None) if only the error's own text describes it."""
    kind, context, found = error["type"], error.get("ctx", {}), error["input"]
    if kind == "not_allowed":
        return context["allowed"], context["nearest"]
    if kind in ("literal_error", "enum"):
        words = re.findall(r"'([^']*)'", str(context["expected"]))
        return ", ".join(words) or str(context["expected"]), nearest(str(found), words)
    if kind in _LIMITS:
        limit, words_before = _LIMITS[kind]
        bound = context[limit]
        return f"{words_before} {bound:g}" if isinstance(bound, float) else f"{words_before} {bound}", None
    near = None
    if kind == "list_type" and isinstance(found, str):
        near = f"[{found}]"
    elif kind == "int_type" and isinstance(found, str) and re.fullmatch(r"-?[0-9]+", found):
        near = found
    elif kind == "bool_type" and isinstance(found, str):
        near = _SWITCHES.get(found.lower())
    if kind == "string_pattern_mismatch":  # the model describes the value by its pattern only
        return f"text that matches the expression {context['pattern']}", None
    return _TYPES.get(kind), near


def _locate(location: KeyPath, model: type[BaseModel]) -> tuple[KeyPath, type[BaseModel] | None, Any]:
    """Return the key path without pydantic's names of union members, the model that contains its last key,
    and the type of that key's value."""
    owner: type[BaseModel] | None = model
    path: list[str | int] = []
    annotation: Any = model
    for key in location:
        holder, values = _model_in(annotation), _mapping_values(annotation)
        if isinstance(key, int) and holder is not None and annotation is not holder:
            path.append(key)  # an item of a list of models
        elif holder is not None:
            owner = holder
            fields = holder.model_fields
            field = fields.get(str(key)) or next((one for one in fields.values() if one.alias == key), None)
            # If a value is missing, pydantic reports the field's own name, not its alias.
            path.append(field.alias if field is not None and field.alias else key)
            annotation = field.annotation if field else None
        elif values is not None or isinstance(key, int):
            owner = None
            path.append(key)
            annotation = values
    return tuple(path), owner, annotation


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _mapping_values(annotation: Any) -> Any:
    """Return the type of a mapping's values, or None if the annotation is not a mapping."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return arguments[1]
    parts = arguments if origin is not Literal else ()
    return next((found for part in parts if (found := _mapping_values(part)) is not None), None)


def _check_signature(handler: type[Handler], options: Mapping[str, Any]) -> list[Explanation]:
    parameters: list[inspect.Parameter] = []
    # The base class accepts any option only to refuse it by name.
    if handler.__init__ is not Handler.__init__:
        parameters = list(inspect.signature(handler.__init__).parameters.values())[1:]
    kinds = inspect.Parameter
    named = {p.name: p for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    faults = [
        Explanation((name,), "missing", "")
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
