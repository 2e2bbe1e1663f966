"""Find the faults of a built site, from its files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults"]

_LOADS = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "object": "data"}
_LINKS_THAT_LOAD = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "preconnect",
    "manifest",
    "dns-prefetch",
}
_OF_CSS = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")


@dataclass
class _Page:
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)
    """Pictures without alternative text."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = _Page()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.page.places.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag == "link" and _LINKS_THAT_LOAD & set(given.get("rel", "").split()):
            self.page.loads.append(given.get("href", ""))
        if given.get(_LOADS.get(tag, "")):
            self.page.loads.append(given[_LOADS[tag]])
        if tag == "img" and not given.get("alt", "").strip():
            self.page.silent.append(given.get("src", ""))


def faults(site: Path) -> list[str]:
    """Return one line for each fault: where, and what."""
    site = site.resolve()
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site).as_posix()}: {fault}"
        for path, page in pages.items()
        for fault in _of_page(site, path, page, pages)
    ]
    for style in sorted(site.rglob("*.css")):
        foreign = sorted(set(_OF_CSS.findall(style.read_text())))
        found += [
            f"{style.relative_to(site).as_posix()}: is loaded from elsewhere: {each}" for each in foreign
        ]
    return found


def _read(path: Path) -> _Page:
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def _of_page(site: Path, path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for picture in page.silent:
        yield f"a picture without words (alt): {picture}"
    for load in page.loads:
        if urlsplit(load).netloc:
            yield f"is loaded from elsewhere: {load}"
        elif not load.startswith("data:") and not _file(site, path, load).is_file():
            yield f"is loaded and not there: {load}"
    for link in dict.fromkeys(page.links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        file = _file(site, path, link) if parts.path else path
        file = file / "index.html" if file.is_dir() else file
        if not file.is_file():
            yield f"a link to what is not there: {link}"
        elif parts.fragment and unquote(parts.fragment) not in pages.get(file, _Page()).places:
            yield f"a link to a part that the page does not have: {link}"


def _file(site: Path, page: Path, link: str) -> Path:
    """Return the target of a page's link. An absolute link starts at the site's root."""
    path = unquote(urlsplit(link).path)
    return (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
