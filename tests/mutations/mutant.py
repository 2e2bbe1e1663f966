"""A copy of the code with one defect in it, and the tests that are to find it there."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forked_pytest import ForkedPytest
from patching import PACKAGES, PROJECT, Mutation, apply
from telling_outcomes import TIMEOUT

__all__ = ["Run", "make_copy", "mutant", "run_tests", "verdict"]

_PLUGIN = "telling_outcomes"
_DEADLINE = 200.0  # seconds for one run; a defect that makes a worker hang is to be found by a test that ends
# A failure of these kinds says that the patch is broken, or the machine busy, not that a test saw the defect.
_NOT_SEEN = {
    *("passed", TIMEOUT, "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError"),
    *("NameError", "UnboundLocalError", "AttributeError", "TypeError"),
}


@dataclass(frozen=True)
class Run:
    """What became of some tests in a copy."""

    code: int
    """pytest's own: 1 means that it ran, and tests failed."""
    outcomes: dict[str, dict[str, str]]
    """test -> {phase: "passed", or the name of what was raised}."""
    strangers: list[str]
    """Modules of the project that were not imported from the copy."""
    output: str
    seconds: float

    def failed(self, test: str) -> bool:
        """Whether it, or one of its parameters, was run and failed by itself, not while it was prepared."""
        return any(
            phases.get("setup") == "passed" and phases.get("call", "passed") not in _NOT_SEEN
            for name, phases in self.outcomes.items()
            if name == test or name.startswith(f"{test}[")
        )


def make_copy(folder: Path) -> None:
    """The packages as they are, and links to everything else."""
    for entry in PROJECT.iterdir():
        if entry.name in PACKAGES:
            shutil.copytree(entry, folder / entry.name, copy_function=_link)
        elif not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)


def _link(source: str, target: str) -> None:
    """The same file under a second name: nobody writes to it, and a patched one is another file."""
    try:
        os.link(source, target)
    except OSError:  # the folder is on another disk
        shutil.copy2(source, target)


def mutant(mutation: Mutation, folder: Path) -> None:
    """A copy with this defect. Raises StalePatch."""
    make_copy(folder)
    for changed in apply(mutation, folder):
        for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*.pyc"):
            compiled.unlink()


def environment(folder: Path) -> dict[str, str]:
    """One in which the copy is imported: by the tests, and by the workers that they start as processes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parent)])}


def run_tests(tests: Sequence[str], folder: Path, forked: ForkedPytest) -> Run:
    """Run them on the code in `folder`."""
    told, output = folder / "outcomes.json", folder / "output.txt"
    arguments = ["-p", _PLUGIN, "-p", "no:xdist", "-p", "no:cacheprovider"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was loaded before the fork
    arguments += ["-o", "addopts=-q --strict-markers", "--hypothesis-seed=0", "--timeout=90", "--tb=short"]
    begun = time.monotonic()
    code = forked.run(
        [*arguments, *tests],
        folder=folder,
        environment={**environment(folder), "OUTCOMES": str(told)},
        output=output,
        seconds=_DEADLINE,
    )
    found = json.loads(told.read_text("utf-8")) if told.exists() else {"outcomes": {}, "strangers": []}
    seconds = time.monotonic() - begun
    return Run(code, found["outcomes"], found["strangers"], output.read_text("utf-8", "replace"), seconds)


def verdict(mutation: Mutation, run: Run) -> str:
    """Why the defect does not count as caught; nothing if it does."""
    if run.strangers:
        return f"{mutation.name}: not the copy was imported: {run.strangers[:5]}\n{run.output}"
    silent = [test for test in mutation.caught_by if not run.failed(test)]
    if run.code != 1 or silent:
        return (
            f"{mutation.name}: {mutation.sentence}\n"
            f"is not caught by {', '.join(silent)} (exit code {run.code}, {run.outcomes}):\n{run.output}"
        )
    return ""
