"""What each subcommand of `binlane` does, a module for each; `worker/cli` reads the command line."""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog loads rich where it finds it, for tracebacks that no command draws: a tenth of a start. Here,
    # as commands have a process of their own; None means to Python that there is no such module.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
