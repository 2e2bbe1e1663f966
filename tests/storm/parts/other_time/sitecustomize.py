"""For a worker under libfaketime alone, which does not know the call by which Python sleeps since 3.11."""

from __future__ import annotations

import select
import time


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = _sleep  # type: ignore[assignment]
