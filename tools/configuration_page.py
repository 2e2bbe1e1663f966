"""docs/configuration-keys.md: every key of a configuration, generated from its model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handlers.loading.registry import BUILT_IN, resolve, section_model
from handlers.options.values import DURATION_PATTERN, SIZE_PATTERN
from worker.configuration import Configuration

__all__ = ["page", "sections"]

_HEAD = """\
# Every key of a configuration

<!-- made by tools/generate.py -->

Which keys can a configuration contain? The tables come from the model that reads a configuration.
`binlane schema` prints the same for editors. [Configuration](configuration.md) explains the keys, and how to
write values (durations, sizes, patterns, variables). A key of type `section` has its own section below.
"""
_TYPES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "null": "`null`",
}
_PATTERNS = {DURATION_PATTERN: "duration", SIZE_PATTERN: "size"}
_TOLD_DEFAULT = re.compile(r"(?:[;.]\s*)[Dd]efault: (.+?)\.?$")

Row = tuple[str, str, str, str]
"""Key, type, default and meaning, in Markdown."""


def page() -> str:
    """Return the whole page, which ends with a line break."""
    parts = [_HEAD]
    for heading, meaning, rows in sections():
        parts.append(
            f"\n## {heading}\n\n{meaning}\n\n| key | type | default | meaning |\n|---|---|---|---|\n"
        )
        parts += [f"| `{key}` | {kind} | {default} | {told} |\n" for key, kind, default, told in rows]
    return "".join(parts)


def sections() -> Iterator[tuple[str, str, list[Row]]]:
    """Yield (heading, meaning, rows) of the file's top level and of each section below it."""
    schema = Configuration.model_json_schema()
    schema["description"] = "The keys at the top level of the file."
    schema["properties"]["spark"]["$ref"] = ""  # a section whose keys are in a separate model
    yield from _sections("Top level", "", schema, schema["$defs"])
    yield from _sections("", "spark", *_model(section_model("spark")))
    for name in BUILT_IN:
        model = resolve(name, Path.cwd()).options_model
        if model is not None:
            yield from _sections("", f"handler {name}", *_model(model))


def _model(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = model.model_json_schema()
    return schema, schema.get("$defs", {})


def _sections(
    heading: str, path: str, schema: dict[str, Any], below: dict[str, Any]
) -> Iterator[tuple[str, str, list[Row]]]:
    required = schema.get("required", [])
    rows = [_row(key, value, key in required, below) for key, value in schema["properties"].items()]
    yield heading or f"`{path}`", _prose(schema.get("description", "")), rows
    for key, value in schema["properties"].items():
        inner, mark = _section_of(value, below)
        if inner is not None:
            where = f"{path}.{key}{mark}" if path else f"{key}{mark}"
            described = {**inner, "description": value.get("description") or inner.get("description", "")}
            yield from _sections("", where, described, below)


def _section_of(value: dict[str, Any], below: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return (the section of a key, the suffix of its name), or None for a plain value."""
    for choice in value.get("anyOf", [value]):
        inner = below.get(choice.get("$ref", "").rpartition("/")[2])
        if inner is not None and "properties" in inner:
            return inner, ""
        for kind, mark in (("items", "[]"), ("additionalProperties", ".<name>")):
            several = choice.get(kind)
            reference = several.get("$ref", "") if isinstance(several, dict) else ""
            items = below.get(reference.rpartition("/")[2])
            if items is not None and "properties" in items:
                return items, mark
    return None, ""


def _row(key: str, value: dict[str, Any], required: bool, below: dict[str, Any]) -> Row:
    told = " ".join((value.get("description") or _referred(value, below).get("description", "")).split())
    found = _TOLD_DEFAULT.search(told)
    default = ""
    if required:
        default = "required"
    elif "default" in value and not (isinstance(value["default"], dict) and value["default"]):
        default = f"`{_written(value['default'])}`"
    if found and default in ("", "`null`"):
        default, told = _prose(found[1]), told[: found.start()] + "."
    return key, _type(value, below), default, _prose(told)


def _type(value: dict[str, Any], below: dict[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_type(choice, below) for choice in value["anyOf"]))
    if "$ref" in value:
        inner = _referred(value, below)
        return _type(inner, below) if inner and "properties" not in inner else "section"
    return _plain_type(value, below)


def _plain_type(value: dict[str, Any], below: dict[str, Any]) -> str:
    if "const" in value or "enum" in value:
        told = [f"`{_written(each)}`" for each in value.get("enum", [value.get("const")])]
        return ", ".join(dict.fromkeys(told))  # "null" and null are written alike
    if value.get("pattern") in _PATTERNS:
        return _PATTERNS[value["pattern"]]
    kind = value.get("type", "text")
    if isinstance(kind, list):
        return " or ".join(_TYPES[each] for each in kind)
    if kind == "array":
        return f"list of {_plural(_type(value.get('items', {}), below))}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"mapping to {_type(inner, below)}" if isinstance(inner, dict) else "mapping"
    return f"{_TYPES.get(kind, kind)}{_range(value)}"


def _plural(kind: str) -> str:
    return {"text": "texts", "section": "sections", "integer": "integers"}.get(kind, kind)


def _range(value: dict[str, Any]) -> str:
    least, most = value.get("minimum"), value.get("maximum")
    above = value.get("exclusiveMinimum")
    if least is None and above is None:
        return "" if most is None else f", at most {most:g}"
    begins = f"above {above:g}" if least is None else f"{least:g}"
    if most is not None:
        return f", {begins} to {most:g}"
    return f", {begins}" if least is None else f", {begins} or more"


def _referred(value: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = below.get(value.get("$ref", "").rpartition("/")[2], {})
    return found


def _written(value: Any) -> str:
    """Format a value as in a file."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _prose(text: str) -> str:
    """Escape a description for a table cell in Markdown. Only its backticks keep their meaning."""
    spans = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if number % 2 else re.sub(r"([*\[\]\\])", r"\\\1", part.replace("<", "&lt;"))
        for number, part in enumerate(spans)
    ).replace("|", "\\|")
