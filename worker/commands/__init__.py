"""The subcommands of `binlane`, one module each. `worker/cli` parses the command line."""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog imports rich for tracebacks that no command prints, a tenth of a start. It is blocked here,
    # because commands have their own process. None makes Python's import fail.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
