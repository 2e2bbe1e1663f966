"""`binlane schema`: the JSON Schema of the configuration (draft 2020-12), for editors."""

from __future__ import annotations

import json
from typing import Any

import typer

from worker.configuration import Configuration

__all__ = ["configuration_schema", "schema"]

_VARIABLE = {"$ref": "#/$defs/Variable"}
_KEPT_OUTSIDE = ("default", "description", "title")


def schema() -> int:
    """Print it."""
    typer.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
    return 0


def configuration_schema() -> dict[str, Any]:
    """The schema, where every value may also be a variable (`${NAME}`), as `load` allows."""
    document = Configuration.model_json_schema()
    definitions = document["$defs"]
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


def _or_variable(value: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    value = {key: part for key, part in value.items() if key != "title"}
    bare = {key: part for key, part in value.items() if key not in _KEPT_OUTSIDE}
    if bare == {"type": "string"} or not _is_scalar(bare, definitions):
        return value
    around = {key: part for key, part in value.items() if key in _KEPT_OUTSIDE}
    choices = bare["anyOf"] if list(bare) == ["anyOf"] else [bare]
    return {**around, "anyOf": [*choices, _VARIABLE]}


def _is_scalar(value: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a single word can be given there; a variable never stands for a list or a mapping."""
    if "anyOf" in value:
        return any(_is_scalar(choice, definitions) for choice in value["anyOf"])
    if "$ref" in value:
        return _is_scalar(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return value.get("type") not in ("object", "array")
