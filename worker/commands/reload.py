"""`binlane reload`: rebuild one table from its topic."""

from __future__ import annotations

from pathlib import Path

from worker.commands.output import begin
from worker.reloading.run import ReloadFault, chosen, reload_table


def reload(config: Path, table: str, handler: str | None = None, *, alone: bool = False) -> int:
    """Rebuild the target's table from the beginning of its topic, then replace the old table. `alone`: no
    worker writes it meanwhile.

    Returns 0, or 1 if it failed: then the table is unchanged. Raises ConfigurationError."""
    configuration, output = begin("reload", config, level="warning")

    def tell_now(text: str) -> None:
        output.say(f"{table}: {text}")

    def tell(text: str) -> None:
        output.say_now_and_then(f"{table}: {text}")

    try:
        done = reload_table(
            configuration, table, chosen(configuration, table, handler), tell, tell_now, is_alone=alone
        )
    except ReloadFault as fault:
        return output.failed(fault)
    if done.undecodable:
        tell_now(f"{done.undecodable:,} records that cannot be decoded were skipped (on_undecodable)")
    print(f"{table}: {done.before:,} rows replaced by {done.after:,}, from {done.changes:,} changes")
    return 0
