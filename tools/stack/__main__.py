"""`python -m stack`: run the stack in the foreground, until `q`, Ctrl-C or SIGTERM. `make stack` calls it.

tools/stack/view.py shows a replica while the stack runs.
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
    """Return 0 after a requested stop, 1 if a part did not start or ended by itself."""
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
    """Print the addresses and the next steps."""
    screen.console.print()
    for name, what in (
        ("page", stack.url),
        ("Prometheus", f"{stack.prometheus_url}/alerts"),
        ("change a row", stack.source.prompt),
        ("look at it", f".venv/bin/python tools/stack/view.py {stack.lake}/shop/orders"),
        ("stop", "q, or Ctrl-C"),
    ):
        # Not wrapped, so that it can be copied.
        screen.console.print(f"[bold]{name:14}[/]{what}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
