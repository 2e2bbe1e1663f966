"""`python -m stack`: the stack in the foreground, until `q`, Ctrl-C or SIGTERM. `make stack` calls it.

tools/stack/view.py shows a replica while it runs.
"""

from __future__ import annotations

import signal
import sys

from stack.keys import asked_to_stop, single_keys
from stack.run import Stack, StackError, started
from worker.demo.screen import Screen
from worker.observing import logs

_LOOK_SECONDS = 0.5


def main() -> int:
    """0: stopped when it was asked to. 1: a part did not start, or ended."""
    logs.configure("warning")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    screen = Screen()
    screen.title("binlane stack", "MariaDB → Debezium in Kafka Connect → Kafka → binlane → Spark; Prometheus")
    try:
        with single_keys(), started(screen) as stack:
            show(screen, stack)
            while not asked_to_stop(_LOOK_SECONDS):
                stack.check()
            screen.console.print("Stopping: the worker drains ...")
    except KeyboardInterrupt:
        pass
    except StackError as fault:
        print(f"make stack: {fault}", file=sys.stderr)  # noqa: T201 - the answer
        return 1
    screen.console.print("Everything has stopped.")
    return 0


def show(screen: Screen, stack: Stack) -> None:
    """Where is what, and what to do now."""
    screen.console.print()
    for name, what in (
        ("page", stack.url),
        ("Prometheus", f"{stack.prometheus_url}/alerts"),
        ("change a row", stack.source.prompt),
        ("look at it", f".venv/bin/python tools/stack/view.py {stack.lake}/shop/orders"),
        ("stop", "q, or Ctrl-C"),
    ):
        # As it is, however long: to be copied.
        screen.console.print(f"[bold]{name:14}[/]{what}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
