"""Patches that bring a defect back, and how they are applied to a copy of the code."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGES", "PROJECT", "Mutation", "StalePatch", "apply", "fitting", "mutations"]

PROJECT = Path(__file__).parents[2]
PACKAGES = ("binlane", "worker", "offsets", "handlers")
_PATCHES = Path(__file__).parent / "patches"
_FILE = re.compile(r"^--- a/(?P<path>.+)$", re.MULTILINE)
_HUNK = re.compile(r"^@@ .*$\n", re.MULTILINE)
_ALL_CONTEXT, _NO_CONTEXT = "-C1", "-C0"  # patches have one line around each piece
_RENEW = """\
{name}: the patch does not fit the code any more, which has changed where the defect was:
{fault}
To renew it: bring the defect back by hand in the code of today,
    python tests/mutations --write {name}
takes it out of the working tree into the patch, and `git checkout` mends the code again. If the defect cannot
come back in that way any more, remove the patch and say so in the commit."""


class StalePatch(Exception):
    """The patch does not fit the code; says how to renew it."""


@dataclass(frozen=True)
class Mutation:
    """One defect, as a patch: a sentence, `Caught by:` a test or several, one a line, then the diff.

    A line `Soak` between them: only a real Spark or Kafka finds it. A line `Waits`: its tests fail when they
    have waited for seconds, or start servers, so that others are tried meanwhile."""

    name: str
    """Its subject and its own name: core/NAME."""
    text: str

    @property
    def sentence(self) -> str:
        """What the defect is."""
        return self.text.partition("\n")[0]

    @property
    def caught_by(self) -> list[str]:
        """Tests as pytest is told of them, each of which has to fail."""
        return re.findall(r"^Caught by: (.+)$", self.head, re.MULTILINE)

    @property
    def soak(self) -> bool:
        return re.search(r"^Soak$", self.head, re.MULTILINE) is not None

    @property
    def waits(self) -> bool:
        return re.search(r"^Waits$", self.head, re.MULTILINE) is not None

    @property
    def head(self) -> str:
        return self.text.partition("\n--- a/")[0]

    @property
    def diff(self) -> str:
        return self.text[len(self.head) + 1 :]

    @property
    def file(self) -> Path:
        return _PATCHES / f"{self.name}.patch"


def mutations(subject: str = "") -> list[Mutation]:
    """Those of one subject, by default all."""
    files = sorted((_PATCHES / subject).rglob("*.patch"))
    return [
        Mutation(file.relative_to(_PATCHES).with_suffix("").as_posix(), file.read_text("utf-8"))
        for file in files
    ]


def apply(mutation: Mutation, folder: Path) -> list[Path]:
    """Bring the defect into the code in `folder`; the files that were changed.

    Raises StalePatch."""
    diff, option = fitting(mutation, folder)
    for path in _FILE.findall(diff):
        file = folder / path
        if file.exists():  # under two names, one of which is that of the code itself
            content = file.read_bytes()
            file.unlink()
            file.write_bytes(content)
    fault = _git_apply(diff, folder, option)
    assert fault is None, fault
    return [folder / path for path in _FILE.findall(diff)]


def fitting(mutation: Mutation, folder: Path) -> tuple[str, str]:
    """The diff as it fits the code in `folder`, and an option of `git apply`: lines may have moved, within
    their file or all together into another one, and what surrounds them may have changed where they are the
    only ones of their kind. Raises StalePatch."""
    fault = _git_apply(mutation.diff, folder, "--check")
    if fault is None:
        return mutation.diff, _ALL_CONTEXT
    for option, expected in ((_ALL_CONTEXT, " -"), (_NO_CONTEXT, "-")):
        followed = _follow(mutation.diff, folder, expected)
        if followed is not None and _git_apply(followed, folder, "--check", option) is None:
            return followed, option
    raise StalePatch(_RENEW.format(name=mutation.name, fault=fault))


def _git_apply(diff: str, folder: Path, *options: str) -> str | None:
    """What git has to say against it."""
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *options, "-"],
        cwd=folder,
        input=diff,
        text=True,
        capture_output=True,
        # A repository around the folder is none of git's business: it would apply nothing there.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"},
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.strip()


def _follow(diff: str, folder: Path, expected: str) -> str | None:
    """The diff with the paths of today, where there is one place alone that holds the lines of each piece;
    `expected`: the signs of those that count."""
    for path in _FILE.findall(diff):
        pieces = list(_pieces(diff, path, expected))
        if not all(pieces):
            return None
        if _holds(folder / path, pieces):
            continue
        files = (file for package in PACKAGES for file in (folder / package).rglob("*.py"))
        holding = [file.relative_to(folder).as_posix() for file in files if _holds(file, pieces)]
        if len(holding) != 1:
            return None
        diff = diff.replace(f"--- a/{path}\n+++ b/{path}\n", f"--- a/{holding[0]}\n+++ b/{holding[0]}\n")
    return diff


def _holds(file: Path, pieces: list[str]) -> bool:
    """Whether each stands once in the file."""
    if not file.is_file():
        return False
    text = file.read_text("utf-8")
    return all(text.count(lines) == 1 for lines in pieces)


def _pieces(diff: str, path: str, expected: str) -> Iterator[str]:
    """Of each piece of the diff of this file, the lines with these signs."""
    part = diff.partition(f"--- a/{path}\n")[2].partition("\n--- a/")[0]
    for hunk in _HUNK.split(part)[1:]:
        yield "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[:1] in expected)
