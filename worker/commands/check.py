"""`binlane check` and `binlane schema`: check a configuration, show where tables go, and test connections;
write the configuration's JSON Schema (draft 2020-12) for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from handlers.loading.registry import BUILT_IN, create, resolve, section_model
from handlers.options.values import format_duration, format_size
from worker.commands.output import Output, begin, table_with, wide_console
from worker.commands.sampling.sample import show_samples
from worker.configuration import Configuration
from worker.configuration.doubts import doubts
from worker.configuration.table_rules import HANDLER_KEYS
from worker.kafka.connection import reach_handlers, reach_kafka, reach_registry
from worker.observing import logs
from worker.partitions.own_store import reach_store
from worker.running.handler_set import OPENING_SECONDS
from worker.running.open_handlers import most_seconds
from worker.running.process import grace_seconds, stop_seconds


def check(config: Path, connect: bool = False, sample: Path | None = None) -> int:
    """Print which pattern leads to which handlers. With `connect`, also connect to Kafka, the checkpoint
    database and the handlers' targets. With `sample`, also show how the records in that file are handled.

    Returns 0, or 1 if a connection failed, a record was not decoded, or no record matches a rule.

    Raises ConfigurationError: the configuration, or the file of records, cannot be used."""
    logs.configure("warning")  # keeps other messages out of the output
    configuration, output = begin("check", config, level="warning")
    console = wide_console()
    console.print(Text(f"{config}: usable"))
    console.print(_table(configuration, output))
    for sentence in doubts(configuration):
        console.print(Text(output.clean(f"Note: {sentence}")), soft_wrap=True)
    console.print(Text(_times(configuration)), soft_wrap=True)
    shown = show_samples(configuration, sample, console, output) if sample is not None else 0
    return max(shown, _connect(configuration, console, output) if connect else 0)


def _times(configuration: Configuration) -> str:
    """Format how long a deployment must wait for a start and a stop."""
    folder = configuration.folder
    entries = [entry for rule in configuration.tables for entry in rule.handlers]
    stop = stop_seconds(
        shutdown_timeout=configuration.shutdown_timeout,
        revoke_timeout=configuration.revoke_timeout,
        # Foreign code is not run for this, so values that such a handler object sets itself are unknown.
        closing=most_seconds(
            create(one, folder) if one.type in BUILT_IN else resolve(one.type, folder) for one in entries
        ),
    )
    start, grace = configuration.start_timeout + OPENING_SECONDS, grace_seconds(stop)
    return (
        f"A deployment has to give a start {start:g} s and a stop {grace:g} s (startup probe, grace period)."
    )


def _table(configuration: Configuration, output: Output) -> Table:
    table = table_with(
        ("match", "handlers", "batch", "attempts", "on failure"),
        caption="The first match wins; other tables are skipped.",
        caption_justify="left",
    )
    for rule in configuration.tables:
        attempts, batch = rule.retry.max_attempts, rule.batch
        size, wait = format_size(batch.max_bytes), format_duration(batch.max_wait)
        names = [one.name if one.name == one.type else f"{one.name} ({one.type})" for one in rule.handlers]
        # Text, because rich would read a pattern such as [a-z] as markup.
        cells = (
            rule.match,
            "\n".join(names),
            f"{batch.max_records} records, {size}, {wait}",
            "for ever" if attempts is None else str(attempts),
            rule.on_failure,
        )
        table.add_row(*(Text(output.clean(cell, lines=True)) for cell in cells))
    return table


def _connect(configuration: Configuration, console: Console, output: Output) -> int:
    failed = False
    for answers in (
        reach_kafka(configuration),
        reach_registry(configuration),
        reach_store(configuration),
        reach_handlers(configuration),
    ):
        for answer in answers:
            if answer.error is None:
                detail = f": {answer.detail}" if answer.detail else ""
                console.print(Text(output.clean(f"{answer.target}: reached{detail}")), soft_wrap=True)
            else:
                failed = True
                output.say(f"{answer.target}: {answer.error}")
    return 1 if failed else 0


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
    any_text = bare.get("type") == "string" and not bare.keys() & {"pattern", "enum", "const", "anyOf"}
    if any_text or not _is_scalar(bare, definitions):
        return value
    around = {key: part for key, part in value.items() if key in _KEPT_OUTSIDE}
    choices = bare["anyOf"] if list(bare) == ["anyOf"] else [bare]
    return {**around, "anyOf": [*choices, _VARIABLE]}


def _is_scalar(value: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a single word is allowed as the value. A variable never replaces a list or a mapping."""
    if "anyOf" in value:
        return any(_is_scalar(choice, definitions) for choice in value["anyOf"])
    if "$ref" in value:
        return _is_scalar(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return value.get("type") not in ("object", "array")
