"""The documentation names what there is: files, folders, parts of pages, metrics, modules."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.observing.metric_definitions import DEFINITIONS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
    key=str,
)
FOLDERS = (
    "benchmarks",
    "binlane",
    "deploy",
    "docs",
    "handlers",
    "k8s",
    "offsets",
    "tests",
    "tools",
    "worker",
)
OF_THE_READER = ("NAME", "TARGET")
"""Parts of paths that whoever reads puts a name of their own in."""


def named(page: Path) -> Iterator[str]:
    """What stands in backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return iter(re.findall(r"`([^`\n]+)`", text))


def places(page: Path) -> set[str]:
    """What a link to a part of the page may name."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_files_that_are_there(page: Path) -> None:
    paths = [name for name in named(page) if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*", name)]
    gone = [
        path
        for path in paths
        if not any(word in path for word in OF_THE_READER) and not (ROOT / path).exists()
    ]
    assert gone == []


def test_the_picture_of_the_code_names_only_files_that_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    paths = set(re.findall(r"\b(?:handlers|offsets|worker)/[a-z_/]+\.py\b", text))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    folder, gone = ROOT, []
    # A name alone is in the folder that was named last.
    for name in re.findall(r"`([a-z_/]+(?:/|\.py))`", text):
        if "/" in name:
            folder = ROOT / name if name.endswith("/") else (ROOT / name).parent
        elif name != "__init__.py" and not (folder / name).exists():
            gone.append(name)
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_part_of_it(page: Path) -> None:
    dead = []
    for target, _, part in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(#([^)\s]*))?\)", page.read_text()):
        file = page.parent / target if target else page
        if not file.exists() or (part and part not in places(file)):
            dead.append(f"{target}#{part}")
    assert dead == []


def test_every_metric_that_is_named_is_one() -> None:
    known = {each.name for each in DEFINITIONS}
    for page in [*PAGES, ROOT / "deploy/alerts.yml"]:
        for name in re.findall(r"\bbinlane_[a-z_]+(?=[`{ \[)])", page.read_text()):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            is_table = name.startswith(("binlane_marks", "binlane_checkpoints"))
            assert known & {name, base} or is_table, f"{page.name}: {name}"


def test_every_module_that_is_named_is_one() -> None:
    for page in PAGES:
        for name in named(page):
            if re.fullmatch(r"(handlers|worker)(\.\w+)+", name):
                module, _, member = name.rpartition(".")
                found = importlib.import_module(module)
                assert hasattr(found, member) or importlib.import_module(name), f"{page.name}: {name}"
