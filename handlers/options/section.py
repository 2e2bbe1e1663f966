"""The base class of all sections of a configuration."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Section(BaseModel):
    """A mapping of the configuration, with known keys and immutable values.

    The docstring after each key is the key's description in the JSON Schema."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        # pydantic's use_attribute_docstrings would read the source of every model at each start.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        told = _docstrings(cls)
        for name, field in cls.model_fields.items():
            found = properties.get(field.alias or name)
            # As pydantic does: do not repeat a description that the referenced schema already has.
            if found is not None and told[name] != handler.resolve_ref_schema(found).get("description"):
                found["description"] = told[name]
        return schema


class Options(Section):
    """A section of a handler. Its values are converted if pydantic can do so."""

    model_config = ConfigDict(strict=False)


def _docstrings(model: type[Section]) -> dict[str, str]:
    """Return each key's docstring, including the keys of base classes."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each not in (Section, Options) and issubclass(each, Section):
            [source] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(source, ast.ClassDef)
            for key, behind in pairwise(source.body):
                match key, behind:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = " ".join(text.split())
    return found
