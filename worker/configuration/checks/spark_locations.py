"""Find Spark handlers that would share a location, as far as the configuration alone shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from worker.configuration.faults import KeyPath

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

_LOGS = "_binlane"
"""A copy of the name in handlers.spark.locations, because importing that module is slow."""

_WILDCARDS = re.compile(r"[*?\[]")


def shared_locations(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path of the entry, the fault) for each handler that shares a location with another handler of
    its rule. A location inside the other one is shared too."""
    for number, rule in enumerate(configuration.tables):
        seen: dict[str, int] = {}
        for place, entry in enumerate(rule.handlers):
            if entry.type != "spark" or entry.options.get("mode") == "function":
                continue
            target = _target(configuration, entry.options)
            for field, name in _plain_names(rule.match).items():
                target = target.replace(f"{{{field}}}", name)
            met = next((one for one in seen if _is_within(one, target) or _is_within(target, one)), target)
            first = seen.setdefault(met, place)
            if first != place:
                where = f"the same place, {met}, and each would treat the other's changes as its own"
                if met != target:
                    where = f"{met}, so one table would be inside the other, whose VACUUM removes its files"
                yield (
                    ("tables", number, "handlers", place),
                    f"tables[{number}].handlers[{first}] keeps its tables in {where}: give one of them its "
                    f"own path, such as lake/{entry.name}/{{database}}/{{table}}",
                )


def _is_within(inner: str, outer: str) -> bool:
    """Check whether `inner` is inside `outer`, outside its hidden folders (VACUUM skips those)."""
    return inner.startswith(f"{outer}/") and inner[len(outer) + 1] not in "_."


def reserved_locations(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path of the pattern, the fault) for each rule whose tables would be in the folder of the Spark
    handler's logs."""
    for number, rule in enumerate(configuration.tables):
        names = _plain_names(rule.match)
        for entry in rule.handlers:
            if entry.type != "spark" or entry.options.get("mode") == "function" or entry.options.get("table"):
                continue
            template = _target(configuration, entry.options)
            before = template.partition("{")[0].rpartition("/")[0]
            folder = template.removeprefix(f"{before}/").partition("/")[0]
            if _fields(folder) <= names.keys() and folder.format(**names) == _LOGS:
                yield (
                    ("tables", number, "match"),
                    f"found {rule.match}; the handler {entry.name} would keep these tables in "
                    f"{before}/{_LOGS}, which binlane uses for its own files: set table to a path such as "
                    f"{before}/of/{{database}}/{{table}}",
                )


def doubtful_locations(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each handler without {database} in its location whose rule may match several."""
    for number, rule in enumerate(configuration.tables):
        if not _may_meet_several(rule.match):
            continue
        for place, entry in enumerate(rule.handlers):
            text = entry.options.get("path") or entry.options.get("table")
            if entry.type == "spark" and isinstance(text, str) and "database" not in _fields(text):
                yield (
                    f"tables[{number}].handlers[{place}]: {text} does not contain {{database}}, and the rule "
                    "may match tables with the same name in several databases, which cannot share a place"
                )


def _target(configuration: Configuration, options: Mapping[str, Any]) -> str:
    """Return the template of the location of a handler's tables."""
    if options.get("table"):
        return str(options["table"])
    warehouse = str(configuration.spark.get("warehouse", "lake")).rstrip("/")
    braced = warehouse.replace("{", "{{").replace("}", "}}")
    path = str(options.get("path") or f"{braced}/{{database}}/{{table}}").rstrip("/")
    return re.sub(r"(?<!:)//+", "/", path.removeprefix("./"))


def _plain_names(match: str) -> dict[str, str]:
    """Field of a template -> its name, of those that the pattern tells as they are (`shop*`: none)."""
    names = zip(("database", "table"), match.partition(".")[::2], strict=True)
    return {field: name for field, name in names if name and not (match[0] == "/" or _WILDCARDS.search(name))}


def _may_meet_several(match: str) -> bool:
    """Whether a pattern may match tables of several databases. A regular expression may, unless it begins
    with the plain name of a database."""
    if match.startswith("/"):
        return re.match(r"/\^?[A-Za-z0-9_\-]+\\\.", match) is None
    return _WILDCARDS.search(match.partition(".")[0]) is not None


def _fields(template: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(template) if field}
