"""The command `binlane`."""

import binlane  # noqa: F401 - puts binlane's own packages first
from worker.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
