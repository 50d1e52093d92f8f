"""The dashboard's page of bridges as an operator uses it: try one out, add it, see it, end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from broker_process import BrokerProcess, start_holdfast
from browser_visit import Visit, broken_titles
from http_api import LISTEN

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    running = [
        start_holdfast(tmp_path_factory.mktemp(name), {"history.enable": False}, listen=LISTEN) for name in ("a", "b")
    ]
    yield running
    for one in running:
        assert "Traceback" not in one.output, one.output
        one.stop()


@pytest.fixture
def visit(browser: Browser, two: list[BrokerProcess]) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(60_000)
    opened = Visit(context.new_page(), f"http://127.0.0.1:{two[0].ports['http']}")
    yield opened
    context.close()
    assert opened.problems == []


def test_a_bridge_is_tried_out_added_shown_and_ended(visit: Visit, two: list[BrokerProcess]) -> None:
    page = visit.page
    visit.open("bridges")
    expect(page.locator("#page")).to_contain_text("There are none.")
    page.click("text=Add a bridge…")
    boxes = [page.locator(f"dialog [name={name}]").bounding_box() for name in ("name", "address", "username")]
    places = [(round(box["x"]), box["width"] > 280) for box in boxes if box]
    assert places == [(places[0][0], True)] * 3, "one field below the other, as wide as the dialog"
    page.fill("dialog [name=name]", "other")
    page.fill("dialog [name=address]", f"mqtt://127.0.0.1:{two[1].port}")
    page.fill("dialog [name=topic]", "sensors/# both 1\ncommands/# in 1")
    page.click("dialog >> text=Try it out")
    expect(page.locator("dialog [role=status]")).to_contain_text("works")
    page.click("dialog button.main")
    row = page.locator("tr[data-bridge=other]")
    expect(row.locator(".state")).to_have_text("connected", timeout=60_000)
    expect(row).to_contain_text("sensors/# both 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert broken_titles(page) == []
    page.set_viewport_size({"width": 768, "height": 844})
    assert page.evaluate("[...document.querySelectorAll('.wide')].every((one) => one.scrollWidth <= one.clientWidth)")
    row.locator("button.danger").click()
    page.click("dialog button.danger")
    expect(row).to_have_count(0, timeout=60_000)


def test_what_is_wrong_with_a_bridge_is_said_in_the_dialog(visit: Visit) -> None:
    page = visit.page
    visit.open("bridges")
    page.click("text=Add a bridge…")
    page.fill("dialog [name=name]", "x")
    page.fill("dialog [name=address]", "mqtt://127.0.0.1")
    page.fill("dialog [name=topic]", "a sideways")
    with page.expect_response("**/api/v1/bridges"):
        page.click("dialog button.main")
    expect(page.locator("dialog [role=alert]")).to_contain_text("expected a direction out, in or both")
    visit.problems.clear()  # the browser notes the refusal as well
