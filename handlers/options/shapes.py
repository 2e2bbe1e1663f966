"""Texts that must match a pattern; errors describe it in words, where pydantic would show the pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from handlers.options.values import not_allowed


@dataclass(frozen=True, slots=True)
class Shaped:
    """Annotation of a text: its pattern, the pattern in words, and a guess at what was meant."""

    pattern: str
    allowed: str
    nearest: Callable[[str], str | None] = lambda _: None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str) -> str:
        if not self._fits(text):
            near = self.nearest(text)
            raise not_allowed(self.allowed, near if near is not None and self._fits(near) else None)
        return text

    def _fits(self, text: str) -> bool:
        # `$` alone would also match before a line break at the end.
        return re.search(self.pattern, text) is not None and not text.endswith("\n")
