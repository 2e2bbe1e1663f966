"""`binlane schema`: the JSON Schema of the configuration (draft 2020-12), for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from handlers.loading.registry import BUILT_IN, resolve, section_model
from worker.configuration import Configuration
from worker.configuration.table_rules import HANDLER_KEYS

_VARIABLE = {"$ref": "#/$defs/Variable"}
_KEPT_OUTSIDE = ("default", "description", "title")


def schema() -> int:
    typer.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
    return 0


def configuration_schema() -> dict[str, Any]:
    """Return the schema, with the options of the built-in handlers.

    Every value may also be a variable (`${NAME}`), as `load` allows."""
    document = Configuration.model_json_schema()
    definitions = document["$defs"]
    document["properties"]["spark"] = {
        **_definition(section_model("spark"), definitions),
        "description": document["properties"]["spark"]["description"],
    }
    _add_handlers(definitions)
    for model in (document, *definitions.values()):
        properties = model.get("properties", {})
        for key, value in properties.items():
            properties[key] = _or_variable(value, definitions)
    definitions["Variable"] = {
        "type": "string",
        "pattern": r"\$\{",
        "description": "${NAME}, ${NAME:-default} or ${file:/path}",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": "binlane configuration",
    }


def _add_handlers(definitions: dict[str, Any]) -> None:
    entry = definitions["HandlerEntry"]
    entry["properties"]["type"] |= {"anyOf": [{"enum": list(BUILT_IN)}, {"pattern": "^[^:]+:[^:]+$"}]}
    entry["allOf"] = []
    for name in BUILT_IN:
        model = resolve(name, Path.cwd()).options_model
        if model is None:
            continue
        reference = _definition(model, definitions)
        options = definitions[model.__name__]
        options["properties"] = {**dict.fromkeys(HANDLER_KEYS, True), **options["properties"]}
        entry["allOf"].append(
            {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": reference}
        )


def _definition(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Add the model's schema to `definitions`, and return a reference to it."""
    schema = model.model_json_schema()
    definitions |= schema.pop("$defs", {})
    definitions[model.__name__] = schema
    return {"$ref": f"#/$defs/{model.__name__}"}


def _or_variable(value: Any, definitions: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    value = {key: part for key, part in value.items() if key != "title"}
    bare = {key: part for key, part in value.items() if key not in _KEPT_OUTSIDE}
    if _takes_any_text(bare) or not _is_scalar(bare, definitions):
        return value
    around = {key: part for key, part in value.items() if key in _KEPT_OUTSIDE}
    choices = bare["anyOf"] if list(bare) == ["anyOf"] else [bare]
    return {**around, "anyOf": [*choices, _VARIABLE]}


def _takes_any_text(value: dict[str, Any]) -> bool:
    return value.get("type") == "string" and not value.keys() & {"pattern", "enum", "const", "anyOf"}


def _is_scalar(value: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a single word is allowed as the value. A variable never replaces a list or a mapping."""
    if "anyOf" in value:
        return any(_is_scalar(choice, definitions) for choice in value["anyOf"])
    if "$ref" in value:
        return _is_scalar(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return value.get("type") not in ("object", "array")
