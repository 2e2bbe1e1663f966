"""The command `binlane`."""

import binlane  # noqa: F401 - binlane's own packages come first
from worker.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
