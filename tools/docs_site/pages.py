"""The pages of the site, arranged as the generator reads them.

`docs/` is the site's root. Other pages (CONTRIBUTING.md, examples/README.md) are added under their names in
the project. Each file that a page links to becomes a page that shows it.

Pages are written for code hosts. The generator's Markdown differs in lists and in bars within a table's code.
An item's content is indented by four, and a list follows an empty line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

__all__ = ["Layout", "as_the_generator_reads_it", "navigation"]

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^ *(```+|~~~+)")
_ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
_CODE_WITH_BAR = re.compile(r"`([^`]*\\\|[^`]*)`")
_PICTURES = (".svg", ".png")
_LANGUAGES = {".yaml": "yaml", ".py": "python"}


class _Loader(yaml.SafeLoader):
    """Loads the generator's file, which names a Python function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation(text: str) -> list[str]:
    """Return the pages in the navigation of a mkdocs.yml, in order, by their names below `docs`."""

    def below(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from below(inner)

    return list(below(yaml.load(text, _Loader)["nav"]))


class Layout:
    """The arrangement of texts in the folder that the generator reads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.pages = navigation((root / "mkdocs.yml").read_text())

    def faults(self) -> list[str]:
        """Return pages that are missing in the navigation, and entries without a page."""
        docs = self._root / "docs"
        there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
        return [
            *(
                f"docs/{page} has no place in the navigation: put it into mkdocs.yml"
                for page in sorted(there - {*self.pages})
            ),
            *(
                f"mkdocs.yml: there is no page {page}"
                for page in self.pages
                if not self._source(page).exists()
            ),
            *(
                f"mkdocs.yml: {page} stands in it {self.pages.count(page)} times"
                for page in dict.fromkeys(self.pages)
                if self.pages.count(page) > 1
            ),
        ]

    def write(self, folder: Path) -> None:
        """Write all pages below `folder`, which is created."""
        shown: set[PurePosixPath] = set()
        for page in self.pages:
            source = self._source(page)
            text = self._with_links(source, source.read_text(), shown)
            _write(folder / self._place(source), as_the_generator_reads_it(text))
        for path in shown:
            source = self._root / path
            if source.suffix in _PICTURES or path.parts[0] == "docs":
                target = folder / self._place(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
            else:
                _write(folder / f"{self._place(source)}.md", _page_of(path, source.read_text()))

    def _source(self, page: str) -> Path:
        inside = self._root / "docs" / page
        return inside if inside.exists() else self._root / page

    def _place(self, source: Path) -> PurePosixPath:
        """Return the place of a project file in the arrangement."""
        path = PurePosixPath(source.relative_to(self._root).as_posix())
        return path.relative_to("docs") if path.parts[0] == "docs" else path

    def _with_links(self, page: Path, text: str, shown: set[PurePosixPath]) -> str:
        """Return the text with adapted links. Add targets that are not pages to `shown`."""

        def link(found: re.Match[str]) -> str:
            mark, words, target, part = found.groups(default="")
            file = Path(os.path.normpath(page.parent / target)) if target else page
            if file.is_dir():
                return words  # a folder has no page
            if not target or not file.exists():
                return found[0]
            place = self._place(file)
            if file.suffix != ".md":
                shown.add(PurePosixPath(file.relative_to(self._root).as_posix()))
                if file.suffix not in _PICTURES:
                    place = place.with_name(f"{place.name}.md")
            new = os.path.relpath(place, self._place(page).parent)
            return f"{mark}[{words}]({new}{part})"

        return _outside_of_blocks(text, lambda line: _LINK.sub(link, line))


def as_the_generator_reads_it(text: str) -> str:
    """Convert a page's lists and tables for Python-Markdown."""
    lines: list[str] = []
    fence = ""
    item = 0  # column of the current list item's text; 0: no list item
    loose = False  # whether the item has paragraphs
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        after_text = bool(lines and lines[-1].strip())
        begins = None if fence else _ITEM.match(line)
        if begins and after_text and not item and begins[2] not in ("-", "*", "1."):
            begins = None  # a number that begins a line
        if begins and after_text and (loose or not item):
            lines.append("")
        if line.strip() and not indent and not begins and not after_text and not fence:
            item, loose = 0, False
        inside = item > 0 and indent >= 2 and line.strip() != ""
        loose = loose or (inside and not after_text)
        if begins and not inside:
            item = len(begins[0])
        if opened := _FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif line.startswith("|") and not fence:
            line = _CODE_WITH_BAR.sub(_as_html, line)  # noqa: PLW2901 - the same line, rewritten
        lines.append(f"{' ' * max(0, 4 - item)}{line}" if inside else line)
    return "\n".join(lines) + "\n"


def _as_html(found: re.Match[str]) -> str:
    """Convert a cell's code to HTML with numbered signs: Python-Markdown would show the backslash."""
    text = found[1].replace("\\|", "|")
    signs = (each if each.isalnum() else f"&#{ord(each)};" for each in text)
    return f"<code>{''.join(signs)}</code>"


def _outside_of_blocks(text: str, change: Callable[[str], str]) -> str:
    parts = re.split(r"(^ *```.*?^ *```[^\n]*$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _page_of(path: PurePosixPath, text: str) -> str:
    language = _LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n`{path}`\n\n````{language}\n{text.rstrip()}\n````\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
