"""The handler of all targets that store rows with versions."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from handlers.api import Batch, Handler, HandlerContext
from handlers.versioned.options import VersionedOptions
from handlers.versioned.target import Dialect, VersionedTarget


class VersionedHandler(Handler):
    """Base of handlers that may write a batch twice: a row's highest version wins."""

    options_model: ClassVar[type[VersionedOptions]]
    dialect: ClassVar[Any]
    """A Dialect class; its arguments are the options and a HandlerContext. It connects on first use, so a
    worker can start while the target is down. Raises OSError if a certificate cannot be read."""

    def __init__(self, **options: Any) -> None:
        self._options = self.options_model.model_validate(options)
        self._dialect: Dialect[Any] | None = None
        self._target: VersionedTarget[Any] | None = None

    def open(self, context: HandlerContext) -> None:
        """Create the dialect. Raises as `dialect` does."""
        made: Dialect[Any] = self.dialect(self._options, context)
        self._dialect, self._target = made, VersionedTarget(made, self._options, context)

    def handle(self, batch: Batch) -> None:
        """Write a batch. Raises as VersionedTarget.handle does."""
        assert self._target is not None, "handle needs open"
        self._target.handle(batch)

    def close(self) -> None:
        if self._dialect is not None:
            self._dialect.close()
        self._dialect = self._target = None

    def check(self, context: HandlerContext) -> None:
        """Check the target. Raises as `dialect` and its `check` do."""
        with closing(self.dialect(self._options, context)) as dialect:
            dialect.check()
