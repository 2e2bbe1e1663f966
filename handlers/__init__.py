"""Targets of changes: the handler interface (`api`), shared code, and one folder for each target. This
package does not depend on the worker or on offsets."""

from handlers import api
from handlers.api import *  # noqa: F403 - so that there is one list of these names, as in asyncio
from handlers.values.bounds import BeyondCalendar

__all__ = [*api.__all__, "BeyondCalendar"]  # noqa: PLE0604 - it has only texts
