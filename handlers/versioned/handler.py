"""The handler of all targets that keep rows with versions."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.versioned.options import VersionedOptions
from handlers.versioned.target import Dialect, VersionedTarget


class VersionedHandler(Handler):
    """Writing a batch twice is the same as once: of a row's versions the highest is the row."""

    options_model: ClassVar[type[VersionedOptions]]
    dialect: ClassVar[Any]
    """A class of Dialect that takes the options and a HandlerContext. It connects when it is first needed, so
    a target that is down keeps no worker from starting. Raises OSError for a certificate that cannot be
    read."""

    def __init__(self, **options: Any) -> None:
        self._options = self.options_model.model_validate(options)
        self._dialect: Dialect[Any] | None = None
        self._target: VersionedTarget[Any] | None = None

    def open(self, context: HandlerContext) -> None:
        """Raises as `dialect`."""
        made: Dialect[Any] = self.dialect(self._options, context)
        self._dialect, self._target = made, VersionedTarget(made, self._options, context)

    def handle(self, batch: Batch) -> None:
        """Raises as VersionedTarget."""
        assert self._target is not None, "handle comes after open"
        self._target.handle(batch)

    def close(self) -> None:
        if self._dialect is not None:
            self._dialect.close()
        self._dialect = self._target = None

    def check(self, context: HandlerContext) -> None:
        """Raises as `dialect`, and as its `check`."""
        with closing(self.dialect(self._options, context)) as dialect:
            dialect.check()
