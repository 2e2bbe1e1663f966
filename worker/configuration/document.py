"""Read YAML by the 1.2 core schema, with the line of every key and with variables replaced. Its faults are
one line each, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from worker.configuration.variables import Replacement, VariableError, Variables

KeyPath = tuple[str | int, ...]

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that makes a configuration unusable.

    `str(fault)` is one line: file and line, key path, what was found, what is allowed, the nearest spelling.
    """

    file: str
    found: str
    """`found "x"`, `unknown key`, `missing`, or a sentence about the file itself."""
    path: str = ""
    """`tables[2].handlers[0].type`; empty for a fault of the file itself."""
    allowed: str = ""
    nearest: str | None = None
    line: int | None = None
    """Counted from 1."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [self.found]
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.nearest:
            # Quoted if YAML needs it, so the user can copy it.
            quoted = json.dumps(self.nearest) if self.nearest[0] in "*&%@!`" else self.nearest
            parts.append(f"nearest: {quoted}")
        text = ": ".join(part for part in (place, self.path, "; ".join(parts)) if part)
        return " ".join(text.splitlines())


class ConfigurationError(Exception):
    """The configuration cannot be used. `faults` lists every fault, in the order of the file.

    The text of the exception has one line for each fault."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = list(faults)


def key_path(path: KeyPath) -> str:
    """Format a path as it is written in text.

    >>> key_path(("tables", 2, "handlers", 0, "type"))
    'tables[2].handlers[0].type'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def shown(value: Any) -> str:
    """Format a value for a fault: short, on one line, and without the contents of mappings and lists."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_INTEGER = re.compile(r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MOST_REPEATED = 20_000
_SPECIAL = "found a value that begins with {}, which has a meaning in YAML"
_IN_WORDS = [
    (r"alias", _SPECIAL.format("*"), "the value in quotes, or an anchor's name after *"),
    (r"scanning an anchor", _SPECIAL.format("&"), "the value in quotes"),
    (r"character '([%@`])' that cannot start any token", _SPECIAL.format(r"\1"), "the value in quotes"),
    (
        r"expected <block end>",
        "found a line whose indentation differs from its neighbours",
        "the keys of a mapping in one column, and the items of a list",
    ),
    (
        r"mapping values are not allowed here",
        "found a colon where no key is expected",
        "a value with a colon in quotes; the keys of a mapping in one column",
    ),
    (r"could not find expected ':'", "found a line without a colon after its key", "key: value"),
    (r"a flow .*<stream end>", "found { or [ that is not closed", "the matching } or ]"),
    (r"quoted scalar.* end of stream", "found a quote that is not closed", "the matching quote"),
]
"""Patterns of PyYAML's errors (context and problem), each with a plain explanation and the remedy."""
_TEXT_TAGS = {None, "!", "tag:yaml.org,2002:str"}


@dataclass
class Document:
    """The contents of a file. If `data` is None, `faults` says why."""

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    """The line where each key and list item begins, counted from 1."""
    replaced: dict[KeyPath, Replacement] = field(default_factory=dict)
    """Values that contained variables."""
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: KeyPath) -> int | None:
        """Return the line of `path`, or of its nearest parent that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def add(self, path: KeyPath, found: str, allowed: str = "", nearest: str | None = None) -> None:
        self.faults.append(Fault(self.file, found, key_path(path), allowed, nearest, self.line(path)))


def parse(text: str, file: str, variables: Variables) -> Document:
    """Read one YAML document. Invalid text raises nothing: its faults are in `Document.faults`."""
    document = Document(file)
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        document.faults.append(_syntax_fault(file, error, text))
        return document
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.faults.append(Fault(file, "found a control character", allowed="UTF-8 text", line=line))
        return document
    except RecursionError:
        document.faults.append(Fault(file, "nested too deeply", allowed="a mapping of the keys"))
        return document
    if root is None:
        document.faults.append(Fault(file, "the file is empty", allowed="a mapping with the key kafka"))
        return document
    if not isinstance(root, yaml.MappingNode):
        found = "found a list" if isinstance(root, yaml.SequenceNode) else "found a single value"
        document.faults.append(Fault(file, found, allowed="a mapping with the key kafka", line=_line(root)))
        return document
    reader = _Reader(document, variables)
    data = reader.value(root, ())
    if not reader.exceeded:
        document.data = data
    return document


def plain(text: str) -> Any:
    """Return the value of an unquoted word by YAML 1.2's core schema: no dates, no `yes`, no sexagesimals."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def typed(text: str) -> Any:
    """Type a variable's value as YAML would, unless that changes how it is written: `0123` stays text."""
    value = plain(text)
    return value if isinstance(value, str) or json.dumps(value) == text else text


class _Reader:
    """Convert YAML nodes into values. Lines, replacements and faults are added to the document."""

    def __init__(self, document: Document, variables: Variables) -> None:
        self._document = document
        self._variables = variables
        self._open: list[yaml.Node] = []
        self._met: set[yaml.Node] = set()
        self._repeated = 0

    @property
    def exceeded(self) -> bool:
        """Whether aliases repeat more values than the limit. The rest is not read."""
        return self._repeated > _MOST_REPEATED

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if node in self._met:
            # Nested aliases can expand a few lines to billions of values.
            if self.exceeded:
                return None
            self._repeated += 1
            if self.exceeded:
                found = f"found aliases that repeat more than {_MOST_REPEATED:,} values"
                self._document.add(path, found, "fewer aliases, or the values written out")
                return None
        self._met.add(node)
        self._document.lines.setdefault(path, _line(node))
        if node in self._open:
            self._document.add(path, "found an alias inside the part that it refers to", "a finite value")
            return {}
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)  # the only other kind of node
            return self._mapping(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        pairs: list[tuple[Any, yaml.Node]] = []
        result: dict[Any, Any] = {}
        first_lines: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.add(path, "found a key that is a list or a mapping", "a word as the key")
                continue
            if "${" in key_node.value:
                place = (*path, key_node.value)
                self._document.lines[place] = _line(key_node)
                self._document.add(place, "found ${...} in a key", "variables in values only")
                continue
            if key_node.value == "<<" and key_node.style is None:
                result = self._merged(value_node, path)
                continue
            # Integer keys are partitions. All other keys are text, even `true`.
            typed = plain(key_node.value) if key_node.style is None else None
            key = typed if type(typed) is int else str(key_node.value)
            place = (*path, key)
            if key in first_lines:
                self._document.lines[place] = _line(key_node)
                self._document.add(place, f"the key occurs twice, first in line {first_lines[key]}", "once")
                continue
            first_lines[key] = _line(key_node)
            pairs.append((key, value_node))
        for key, value_node in pairs:
            place = (*path, key)
            self._document.lines[place] = first_lines[key]
            # The value replaces the one from a merged mapping entirely.
            self._document.replaced.pop(place, None)
            result[key] = self.value(value_node, place)
        return result

    def _merged(self, node: yaml.Node, path: KeyPath) -> dict[Any, Any]:
        """Return the keys that `<<: *anchor` or `<<: [*a, *b]` merges. The earlier mapping wins."""
        result: dict[Any, Any] = {}
        for other in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(other, yaml.MappingNode):
                result = {**self.value(other, path), **result}
            else:
                self._document.add(path, "found << without a mapping", "<<: *anchor of a mapping")
        return result

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        # BaseLoader gives every untagged scalar the str tag. Any other tag was written in the file.
        if node.tag not in _TEXT_TAGS:
            self._document.add(
                path, f"found the tag {shown(node.tag)}", "values without a tag, quoted if they begin with !"
            )
            return None
        try:
            replacement = self._variables.replace(node.value)
        except VariableError as error:
            self._document.add(path, error.found, error.allowed)
            return ""
        if replacement is None:
            return plain(node.value) if node.style is None else str(node.value)
        self._document.replaced[path] = replacement
        if node.style is None and replacement.whole:
            return typed(replacement.text)
        return replacement.text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax_fault(file: str, error: yaml.MarkedYAMLError, text: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else None
    problem = error.problem or error.context or "it cannot be read"
    lines = text.splitlines()
    if line is not None and line <= len(lines) and "got '{'" in problem and "${" in lines[line - 1]:
        return Fault(file, "found ${...} within {...} or [...]", allowed='"${...}" in quotes', line=line)
    if r"'\t'" in problem:
        return Fault(file, "found a tab", allowed="spaces for indentation", line=line)
    if "but found another document" in problem or "single document" in str(error.context):
        return Fault(file, "found a second document", allowed="one document", line=line)
    for pattern, found, allowed in _IN_WORDS:
        said = re.search(pattern, f"{error.context}: {problem}")
        if said:
            return Fault(file, said.expand(found), allowed=allowed, line=line)
    return Fault(file, f"not YAML: {problem}", line=line)
