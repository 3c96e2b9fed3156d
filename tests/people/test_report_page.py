"""The report as a page: complete in itself, safe with any names, and what a browser makes of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser

import pytest

from tests.people.reported import HOSTILE, NAMES

SECTIONS = ["calibration", "rows", "support", "features", "trust", "appendix"]
APPENDIX = ["scores", "shape", "trees", "model", "terms"]


class Parsed(HTMLParser):
    """Tags with their attributes, text by tag; complains about tags that are not closed in order."""

    VOID = frozenset({"meta", "br", "img", "link", "hr"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("name", NAMES)
def test_page_is_complete_and_loads_nothing(report_pages, name):
    page = report_pages[name]
    parsed = Parsed(page)
    assert [heading["id"] for heading in parsed.of("h2")] == SECTIONS
    assert [heading["id"] for heading in parsed.of("h3")] == APPENDIX
    assert len(parsed.of("h1")) == len(parsed.of("title")) == 1
    assert len(parsed.of("svg")) == len(parsed.of("figure")) == len(parsed.of("figcaption"))
    assert len(parsed.of("svg")) == (5 if name in ("tuned", "poisson") else 4)
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 20 for svg in parsed.of("svg"))
    assert all("scope" in th for th in parsed.of("th"))
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in parsed.tags}
    for _, attributes in parsed.tags:
        assert not any(key.startswith("on") for key in attributes)
        for key in ("src", "href", "xlink:href"):
            assert attributes.get(key, "#").startswith("#")
    assert not re.search(r"@import|url\((?!#)", page)
    assert len(page.encode()) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_figures_do_not_share_names(report_pages, name):
    """Clip paths and markers of several figures are in one document."""
    page = report_pages[name]
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', page)
    assert {a or b for a, b in used} <= set(ids)
    assert used


def test_colours_are_the_pages_own(report_pages):
    page = report_pages["tuned"]
    svg = page[page.index("<svg") :]
    assert "currentColor" in svg
    assert "var(--c0)" in svg
    assert not re.search(r"(fill|stroke): ?#(?!f{6})", svg)  # black ink would be lost on dark ground


def test_names_and_titles_are_text(report_pages):
    page = report_pages["tuned"]
    assert escape(HOSTILE) in page
    assert "<script" not in page
    cells = [unescape(text) for text in re.findall(r'<th scope="row">(.*?)</th>', page)]
    assert HOSTILE in cells
    assert "a" + "b'c&d" in cells
    assert "$\\frac" in cells


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(page, folder):
    """The document after loading, and the log."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    quiet = ["quic", "background-networking", "component-update", "sync", "extensions", "gpu"]
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",  # else not as root
            "--no-first-run",
            *(f"--disable-{name}" for name in quiet),
            f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
            (folder / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_in_a_browser(report_pages, tmp_path):
    for name in ("tuned", "poisson"):
        folder = tmp_path / name
        folder.mkdir()
        document, console = browse(report_pages[name], folder)
        assert console == []
        for section in SECTIONS:
            assert f'<h2 id="{section}">' in document
        assert document.count("<svg") == 5
        assert "<script" not in document


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_script_would_be_refused_and_seen(report_pages, tmp_path):
    """The log of the test above is not deaf, and the page's policy stops what escaping might let through."""
    page = report_pages["tuned"].replace("</main>", "<script>document.title = 'run'</script></main>")
    document, console = browse(page, tmp_path)
    assert console
    assert "<title>run" not in document
