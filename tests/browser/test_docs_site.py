"""The documentation as a site: opened from the disk, with nothing but its own files."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts/docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs_site = load()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    docs_site.write(docs_site.load(), out)
    return out


@pytest.fixture
def page(browser: Browser, folder: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto((folder / "index.html").as_uri())
    yield opened
    context.close()
    assert [url for url in asked if not url.startswith("file://")] == []
    assert wrong == []


def test_every_link_and_anchor_of_the_documentation_leads_somewhere() -> None:
    pages = docs_site.load()
    assert docs_site.problems(pages) == []
    pages["README.md"].links += ["docs/nowhere.md", "docs/guides/tls.md#no-such-heading", "#nor-this"]
    assert len(docs_site.problems(pages)) == 3


def test_every_link_between_the_pages_of_the_site_leads_to_a_file(folder: Path) -> None:
    for path in folder.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#]+)', path.read_text()):
            assert "://" in target or target.startswith("mailto:") or (path.parent / target).exists(), (path, target)


def test_words_are_found_without_a_server_and_lead_to_their_section(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("sd cards flash")
    first = page.locator("#found a").first
    expect(first).to_contain_text("SD cards and other flash")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"guides/sizing\.html#sd-cards-and-other-flash$"))
    expect(page.locator("h2#sd-cards-and-other-flash")).to_be_in_viewport()
    page.fill("#search", "no-such-word-anywhere")
    expect(page.locator("#found")).to_have_text("Nothing found.")


def test_the_menu_has_every_page_and_marks_the_one_that_is_open(page: Page, folder: Path) -> None:
    assert page.locator("nav a").count() == len(list(folder.rglob("*.html")))
    page.click("nav >> text=Troubleshooting")
    expect(page.locator("nav [aria-current=page]")).to_have_text("Troubleshooting")
