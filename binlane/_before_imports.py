"""What happens before other modules are imported: early signals, a quicker start, own packages first."""

from __future__ import annotations

import os
import signal
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from itertools import pairwise
from pathlib import Path

_OWN = ("handlers", "offsets", "worker")
_names = [Path(each).name for each in sys.orig_argv[1:]]


def come_first() -> None:
    """Import these packages from the folder of this package, whatever precedes it on the path.

    Raises ImportError if another module of such a name was imported before."""
    beside = Path(__file__).resolve().parents[1]
    for name in _OWN:
        known = sys.modules.get(name)
        if known is None:
            _load(name, beside)
        elif Path(known.__file__ or "").resolve().parents[1] != beside:
            raise ImportError(
                f"binlane needs its own package {name}, but {known.__file__} was imported under that name "
                "before: import binlane first, and rename that module"
            )


def _load(name: str, folder: Path) -> None:
    spec = PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"binlane is incomplete: {folder} has no {name}; install it again")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def take_early_signals() -> None:
    """In `binlane run`, let SIGTERM and SIGINT exit with 0 until the worker installs its own handlers."""
    if ("binlane", "run") in pairwise(_names):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: os._exit(0))


def leave_out_rich() -> None:
    """In binlane's own processes, import structlog without rich: an eighth of a start, for tracebacks that
    nobody prints."""
    if "binlane" in _names and not {"structlog", "rich"} & sys.modules.keys():
        sys.modules["rich"] = None  # type: ignore[assignment]  # makes its import fail
        try:
            import structlog  # noqa: F401, PLC0415 - its first import
        finally:
            del sys.modules["rich"]
