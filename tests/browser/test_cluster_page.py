"""The dashboard of a cluster as an operator uses it: which nodes there are, where a client is, and draining a node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import wire
from browser_visit import Visit, broken_titles
from cluster_nodes import ClusterNodes

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    with ClusterNodes(tmp_path_factory.mktemp("cluster"), http=True) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, cluster: ClusterNodes, request: pytest.FixtureRequest) -> Iterator[Visit]:
    options = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    opened = Visit(context.new_page(), f"http://127.0.0.1:{cluster['a'].http_port}")
    yield opened
    context.close()
    assert opened.problems == []


def test_all_nodes_are_shown_and_are_equal(visit: Visit, cluster: ClusterNodes, images: Path) -> None:
    page = visit.page
    visit.open("cluster")
    for name in "abc":
        row = page.locator(f"tr[data-node={name}]")
        expect(row.locator(".state")).to_have_text("ready")
        expect(row).to_contain_text(", equal")
        expect(row).to_contain_text(f"127.0.0.1:{cluster[name].port}")
    expect(page.locator(".number", has_text="Nodes up")).to_contain_text("3 of 3")
    expect(page.locator(".facts")).to_contain_text("log-")
    if os.environ.get("SCREENSHOTS") == "1":
        page.screenshot(path=str(images / "cluster.png"))
    page.click(".compare")
    expect(page.locator(".compared")).to_contain_text("All nodes are equal")


def test_a_client_is_shown_with_its_node_and_disconnected_there(visit: Visit, cluster: ClusterNodes) -> None:
    page = visit.page
    client = cluster.client("b")
    client.connect("far")
    visit.open("clients")
    page.fill(".search", "far")
    row = page.locator("tr.pick", has_text="far")
    expect(row.locator("[data-label=Node]")).to_have_text("b")
    expect(row.locator(".state")).to_have_text("connected")
    row.click()
    page.click(".pair .ends")
    page.click("dialog button.danger")
    client.expect(wire.Disconnect, timeout=60)
    expect(page.locator("tr.pick")).to_have_count(0)


@pytest.mark.parametrize("visit", [{"viewport": {"width": 390, "height": 844}}], indirect=True, ids=["390px"])
def test_the_page_fits_on_a_phone(visit: Visit) -> None:
    visit.open("cluster")
    expect(visit.page.locator("tr[data-node=c]")).to_be_attached()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert broken_titles(visit.page) == []


def test_a_node_is_drained_after_a_question(visit: Visit, cluster: ClusterNodes) -> None:
    page = visit.page
    client = cluster.client("c")
    client.connect("leaving")
    visit.open("cluster")
    button = page.get_by_role("button", name="Drain node c")
    button.focus()
    with page.expect_response("**/api/v1/cluster"):
        pass
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")  # the page has drawn it by then
    expect(button).to_be_focused()
    button.click()
    page.click("dialog button:has-text('Cancel')")
    expect(page.locator("tr[data-node=c] .state")).to_have_text("ready")
    button.click()
    page.click("dialog button.danger")
    expect(page.locator(".toast")).to_contain_text("Drained: c")
    assert client.expect(wire.Disconnect, timeout=60).reason == 0x9C
    expect(page.locator("tr[data-node=c] .state")).to_have_text("drained")
    expect(button).to_have_count(0)
