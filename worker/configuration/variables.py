"""Variables in values: `${NAME}`, `${NAME:-default}` and `${file:/run/secrets/x}`.

They are replaced after the YAML is parsed, so a value cannot add YAML structure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# `$${` is the escape for a literal `${`.
_PIECE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)
_FORMS = "${NAME}, ${NAME:-default}, ${file:/path} ($${ for the characters themselves)"


class VariableError(ValueError):
    """A variable that cannot be replaced: `found` and `allowed` are phrases without any value."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(f"{found}; allowed: {allowed}")
        self.found = found
        self.allowed = allowed


class Replacement(NamedTuple):
    """A text with its variables replaced."""

    text: str
    values: tuple[str, ...]
    """The values of the variables, in order. They must never be shown."""
    whole: bool
    """Whether the text was exactly one variable."""
    from_file: bool


@dataclass(frozen=True)
class Variables:
    """The sources of variables' values."""

    environment: Mapping[str, str]
    folder: Path
    """The folder that relative paths of `${file:...}` start from."""

    def replace(self, text: str) -> Replacement | None:
        """Replace the variables in `text`. Return None if there are none.

        Raises VariableError: a variable is not set, a file cannot be read, or `${` has no name."""
        if "${" not in text:
            return None
        pieces: list[str] = []
        values: list[str] = []
        from_file = False
        position = 0
        for match in _PIECE.finditer(text):
            pieces.append(text[position : match.start()])
            position = match.end()
            if match["body"] is None:
                pieces.append("${")
                continue
            if not match["end"]:
                raise VariableError("found ${ without }", _FORMS)
            values.append(self._value(match["body"]))
            pieces.append(values[-1])
            from_file |= match["body"].startswith("file:")
        pieces.append(text[position:])
        whole = len(values) == 1 and _PIECE.fullmatch(text) is not None
        return Replacement("".join(pieces), tuple(values), whole, from_file)

    def _value(self, body: str) -> str:
        if body.startswith("file:"):
            return self._content(body.removeprefix("file:"))
        match = _NAME.fullmatch(body)
        if match is None:
            raise VariableError("found ${...} without a variable's name", _FORMS)
        value = self.environment.get(match["name"])
        if match["default"] is not None:
            # As in a shell, `:-` also replaces an empty value.
            return value or match["default"].removeprefix(":-")
        if value is None:
            raise VariableError(
                f"the environment variable {match['name']} is not set",
                f"set it, or give a default: ${{{match['name']}:-default}}",
            )
        return value

    def _content(self, name: str) -> str:
        path = self.folder / name
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise VariableError(f"the file {path} is not UTF-8 text", "a text file") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise VariableError(f"the file {path} cannot be read ({reason})", "a readable file") from None
        # Editors and `echo` add a line break at the end, which is not part of the secret.
        return content.removesuffix("\n").removesuffix("\r")
