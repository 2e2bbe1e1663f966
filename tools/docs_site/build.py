"""Build the site, and fail for anything that would hinder a reader."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs_site.checks import faults
from docs_site.pages import Layout

__all__ = ["SiteError", "build"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class SiteError(Exception):
    """The site cannot be used. The text has one line for each fault."""


def build(root: Path, folder: Path) -> int:
    """Build the project's site into an emptied `folder`. Return the number of pages.

    Raises SiteError for a page outside of the navigation, a broken link or a missing part of a page. Also for
    a picture without alternative text, or a resource of another site.
    """
    layout = Layout(root)
    _refuse(layout.faults())
    with tempfile.TemporaryDirectory(prefix="binlane-site-") as name:
        work = Path(name)
        shutil.copy(root / "mkdocs.yml", work)
        layout.write(work / "docs")
        shutil.copy(Path(__file__).with_name("site.css"), work / "docs")
        _generate(work)
        _refuse(faults(work / "site"))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(work / "site", folder)
    return len(layout.pages)


def _generate(work: Path) -> None:
    zensical = Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        raise SiteError(f"there is no {zensical}: make setup installs it")
    done = subprocess.run(
        [zensical, "build", "--strict"],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = _COLOURS.sub("", f"{done.stdout}{done.stderr}")
        # A traceback of its own code does not help the reader.
        raise SiteError(said.partition("Traceback (most recent call last)")[0].strip())


def _refuse(found: list[str]) -> None:
    if found:
        raise SiteError("\n".join(found))
