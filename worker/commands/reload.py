"""`binlane reload`: one table built again from its topic."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from worker.configuration import load
from worker.observing import logs
from worker.observing.visible_text import visible
from worker.reloading.run import ReloadFault, chosen, reload_table

__all__ = ["reload"]

_TELL_SECONDS = 5.0


def reload(config: Path, table: str, handler: str | None = None, *, alone: bool = False) -> int:
    """Build the target's table again from the beginning of its topic, and put it in the place of the old one.
    `alone`: no worker writes it meanwhile.

    Returns 0 when that is done, 1 when not: then the table is as it was.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    configuration = load(config)
    redact = configuration.secrets.redact
    logs.configure("warning", configuration.logging.format, redact=redact)

    def say(text: str) -> None:
        print(visible(redact(" ".join(text.split()))), file=sys.stderr, flush=True)

    def tell_now(text: str) -> None:
        say(f"{table}: {text}")

    last = -_TELL_SECONDS

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_SECONDS:
            last = time.monotonic()
            tell_now(text)

    try:
        done = reload_table(
            configuration, table, chosen(configuration, table, handler), tell, tell_now, is_alone=alone
        )
    except ReloadFault as fault:
        say(f"binlane reload: {fault}")
        return 1
    if done.undecodable:
        say(f"{table}: {done.undecodable:,} records that cannot be decoded were passed over (on_undecodable)")
    print(f"{table}: {done.before:,} rows replaced by {done.after:,}, from {done.changes:,} changes")
    return 0
