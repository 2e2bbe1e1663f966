"""Every event that the code logs, found in the code, and the page that explains the events.

tools/log_events.yaml has the texts: {event: {when: ..., do: ...}}.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeGuard

import yaml

from worker.observing.log_limits import STORMY

__all__ = ["Event", "faults", "found", "page", "told"]

ROOT = Path(__file__).parents[1]
PACKAGES = ("binlane", "worker", "offsets", "handlers")
LEVELS = ("debug", "info", "warning", "error", "critical")

_METHODS = {**{level: level for level in LEVELS}, "exception": "error"}
_LOGGERS = ("log", "_log")
_NO_FIELDS = ("exc_info",)
_ANY = "as configured"

_HEAD = """\
# Log events

What does an event in the log mean, and what should be done about it?

A worker, its handlers and its commands log these events. A line has `timestamp`, `level`, `logger`,
`event` and the event's own fields. Lines are JSON unless they go to a terminal (`logging.format`). A line
has `exception` if an error's place in the code helps. Other lines come from libraries (librdkafka,
uvicorn, py4j). They have a text instead of a name.

An event marked with * may occur with every record or batch. It is logged at most ten times a minute for
one subject (a table, a handler, a partition) and a hundred times in total. Lines that are left out are
counted. The subject's next line has `repeated`, the number of lines left out since its last one. If no
line follows within the minute, one line `lines_left_out` has the number, and names the subjects with the
most lines. Counters count all events: `binlane_records_skipped_total`, `binlane_handler_failures_total`,
`binlane_dead_letters_total` and similar ones, `binlane_log_events_total` by level, and
`binlane_log_lines_left_out_total`.

This page is generated from the code and from `tools/log_events.yaml` (`python tools/generate.py`).

| event | level | meaning | fields | what to do |
|---|---|---|---|---|
"""


@dataclass
class Event:
    """One event name, with all places that log it."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


@cache
def found(root: Path = ROOT) -> dict[str, Event]:
    """Return {name: event}, sorted. Raises ValueError for a call without a literal name, level or fields."""
    events: dict[str, Event] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            place = file.relative_to(root)
            for call, where in _calls(file.read_text("utf-8"), str(place)):
                for name, level, fields in _logged(call, where):
                    event = events.setdefault(name, Event())
                    event.levels |= level
                    event.fields |= dict.fromkeys(fields)
                    event.places.append(str(place))
    return dict(sorted(events.items()))


def told(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return the texts: {name: {"when": when it is logged, "do": what to do}}.

    Some have `fields`: those that the call does not show."""
    texts: dict[str, dict[str, str]] = yaml.safe_load((root / "tools/log_events.yaml").read_text("utf-8"))
    return texts


def faults(root: Path = ROOT) -> list[str]:
    """Return a line for each disagreement between the code, the texts and the limited events."""
    events, texts = found(root), told(root)
    lines = [f"{name} ({events[name].places[0]}) has no entry" for name in events if name not in texts]
    lines += [f"{name} is logged nowhere" for name in texts if name not in events]
    lines += [f"{name} is limited and logged nowhere" for name in STORMY if name not in events]
    for name, limits in STORMY.items():
        unknown = set(limits) - set(events[name].fields if name in events else ())
        # A handler's logger may have its name bound.
        lines += [f"{name} is limited by {each}, which it has not" for each in sorted(unknown - {"handler"})]
    for name, text in texts.items():
        if set(text) - {"fields"} != {"when", "do"} or not all(
            isinstance(each, str) and each for each in text.values()
        ):
            lines.append(f"{name} must say when and do, each a text")
    return lines


def page(root: Path = ROOT) -> str:
    """Return the text of docs/log-events.md. Raises ValueError if code and texts disagree."""
    if wrong := faults(root):
        raise ValueError(f"tools/log_events.yaml: {'; '.join(wrong)}")
    texts = told(root)
    rows = []
    for name, event in found(root).items():
        levels = ", ".join(sorted(event.levels, key=[*LEVELS, _ANY].index))
        fields = ", ".join(f"`{each}`" for each in [*event.fields, *texts[name].get("fields", "").split()])
        mark = "*" if name in STORMY else ""
        rows.append(f"| `{name}`{mark} | {levels} | {texts[name]['when']} | {fields} | {texts[name]['do']} |")
    return _HEAD + "\n".join(rows) + "\n"


def _calls(code: str, place: str) -> Iterator[tuple[ast.Call, str]]:
    """Yield calls of a logger's methods with places. Raises ValueError for a method that is not called."""
    if "log" not in code:
        return
    methods: list[ast.Attribute] = []
    calls: dict[int, ast.Call] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            calls[id(node.func)] = node
        elif _is_method(node):
            methods.append(node)
    for method in methods:
        call = calls.get(id(method))
        if call is None:
            raise ValueError(f"{place}:{method.lineno}: a logger's method that is not called there")
        yield call, f"{place}:{method.lineno}"


def _is_method(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether it is a method of a logger: `log.info`, `self._log.log`, `get_logger("x").error`."""
    if not isinstance(node, ast.Attribute) or node.attr not in (*_METHODS, "log"):
        return False
    match node.value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _LOGGERS
        case ast.Call(func=ast.Name(id="get_logger") | ast.Attribute(attr="get_logger")):
            return True
    return False


def _logged(call: ast.Call, place: str) -> Iterator[tuple[str, set[str], list[str]]]:
    assert isinstance(call.func, ast.Attribute)
    arguments = list(call.args)
    levels = {_METHODS.get(call.func.attr, "")}
    if call.func.attr == "log":
        levels = _levels(arguments.pop(0))
    names = _names(arguments[0]) if len(arguments) == 1 else []
    if not names:
        raise ValueError(f"{place}: an event's name must be written out, alone before its fields")
    fields = [each.arg for each in call.keywords if each.arg is not None and each.arg not in _NO_FIELDS]
    for name in names:
        yield name, levels, fields


def _levels(node: ast.expr) -> set[str]:
    match node:
        case ast.IfExp(body=one, orelse=other):
            return _levels(one) | _levels(other)
        case ast.Attribute(value=ast.Name(id="logging"), attr=name):
            return {name.lower()}
    return {_ANY}


def _names(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.IfExp(body=one, orelse=other):
            return _names(one) + _names(other)
    return []
