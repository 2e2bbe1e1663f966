"""The site is built from the pages, complete, and loads nothing from elsewhere."""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from documentation.blocks import ROOT
from markdown_it import MarkdownIt

sys.path.insert(0, str(ROOT / "tools"))
from docs_site.build import SiteError, build
from docs_site.checks import faults
from docs_site.pages import Layout, navigation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = navigation((ROOT / "mkdocs.yml").read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    build(ROOT, folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small one with the settings of the real one, to be broken."""
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (root / "mkdocs.yml").write_text(f"{settings}\nnav:\n  - Home: index.md\n  - Other: OTHER.md\n")
    (root / "docs" / "index.md").write_text("# Home\n\n[The other](../OTHER.md) one.\n\n## A `part` of it\n")
    (root / "OTHER.md").write_text("# Other\n\n[Home](docs/index.md#a-part-of-it), [a folder](docs)\n")
    return root


class Words(HTMLParser):
    """The text of a page's article, without what the site adds to it; and how many of some elements."""

    COUNTED = ("li", "pre", "tr", "h2", "h3", "img")

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.words: list[str] = []
        self.counts = dict.fromkeys(self.COUNTED, 0)
        self._inside = whole
        self._skipped = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "article":
            self._inside = True
        if self._skipped or "headerlink" in (given.get("class") or "") or tag in ("button", "nav", "script"):
            self._skipped += tag not in ("img", "br", "input", "hr", "path")
        elif self._inside and tag in self.counts:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif tag == "article":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside and not self._skipped:
            self.words += data.split()


def read(html: str, *, whole: bool) -> Words:
    reader = Words(whole)
    reader.feed(html)
    return reader


def test_each_page_is_there(site: Path) -> None:
    assert len(PAGES) > 30
    assert (site / "index.html").is_file()
    assert (site / "handlers" / "sql" / "index.html").is_file()
    assert (site / "examples" / "formats" / "json.yaml" / "index.html").is_file(), "a file that is linked to"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_on_the_site_what_it_says_on_a_code_host(page: str, site: Path) -> None:
    """Python-Markdown takes lists and escapes otherwise than CommonMark does."""
    source = ROOT / "docs" / page if (ROOT / "docs" / page).exists() else ROOT / page
    expected = read(MarkdownIt("commonmark").enable("table").render(source.read_text()), whole=True)
    place = Path(page).with_suffix("")
    place = place.parent if place.name in ("README", "index") else place
    shown = read((site / place / "index.html").read_text(), whole=False)
    assert shown.counts == expected.counts
    assert "".join(shown.words) == "".join(expected.words)


def test_a_small_project_becomes_a_site_again_and_again(project: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "old.html").touch()
    assert build(project, tmp_path / "site") == 2
    assert not (tmp_path / "site" / "old.html").exists()
    assert 'href="../#a-part-of-it"' in (tmp_path / "site" / "OTHER" / "index.html").read_text()


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("mkdocs.yml", "  - Home: index.md\n", "", "docs/index.md has no place in the navigation"),
        ("mkdocs.yml", "OTHER.md", "OTTER.md", "there is no page OTTER.md"),
        ("mkdocs.yml", "Other: OTHER.md", "Other: index.md", "index.md stands in it 2 times"),
        ("docs/index.md", "../OTHER.md", "../OTTER.md", "page does not exist"),
        ("OTHER.md", "#a-part", "#the-part", "anchor does not exist"),
        ("OTHER.md", "[Home]", "![](https://example.org/x.png) [Home]", "a picture without words"),
        ("OTHER.md", "[Home]", "![x](https://example.org/x.png) [Home]", "is loaded from elsewhere"),
    ],
)
def test_what_is_wrong_ends_the_build(file: str, old: str, new: str, told: str, project: Path) -> None:
    before = (project / file).read_text()
    assert old in before
    (project / file).write_text(before.replace(old, new, 1))
    site = project / "build" / "site"
    with pytest.raises(SiteError, match=re.escape(told)) as error:
        build(project, site)
    assert "\x1b" not in str(error.value)
    assert "Traceback" not in str(error.value)
    assert not site.exists()


@pytest.mark.parametrize(
    ("html", "told"),
    [
        ('<a href="b/">x</a>', "a link to what is not there: b/"),
        ('<a href="#c">x</a>', "a part that the page does not have: #c"),
        ('<a href="#d">x</a><p id="d">', ""),
        ('<a href="https://example.org/">x</a>', ""),
        ('<script src="https://example.org/a.js">', "is loaded from elsewhere"),
        ('<link rel="preconnect" href="https://example.org">', "is loaded from elsewhere"),
        ('<link rel="canonical" href="https://example.org">', ""),
        ('<img src="e.png" alt="x">', "is loaded and not there: e.png"),
        ('<img src="data:image/png;base64,AA" alt=" ">', "a picture without words"),
    ],
)
def test_a_page_is_looked_through(html: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html)
    found = faults(tmp_path)
    assert len(found) == (1 if told else 0), found
    assert told in "".join(found)


def test_styles_are_looked_through(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://example.org/a.css'; b { background: url(x.png) }")
    assert faults(tmp_path) == ["a.css: is loaded from elsewhere: https://example.org/a.css"]


def test_all_pages_of_the_project_have_their_place() -> None:
    assert Layout(ROOT).faults() == []


@pytest.fixture
def url(site: Path) -> Iterator[str]:
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(quiet, directory=site)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_browser_asks_nobody_else_and_finds_what_is_searched(browser: Browser, url: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    said: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: said.append(request.url))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(f"{url}/concepts/")
        assert page.locator("article img").count() == 5
        broken = page.evaluate(
            "[...document.images].filter(each => !each.naturalWidth).map(each => each.src)"
        )
        assert broken == []
        page.keyboard.press("/")
        page.keyboard.type("max_attempts", delay=20)
        page.get_by_role("link", name="Configuration").first.wait_for()
    finally:
        context.close()
    assert [each for each in asked if not each.startswith((url, "data:", "blob:"))] == []
    assert said == []
