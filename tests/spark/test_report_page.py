"""The report in a real browser without a network: charts are drawn, in light and dark, on a desk and on a phone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page

from browser_visit import Visit
from holdfast.spark.jobs.page import build_page
from holdfast.spark.jobs.report import AGES, AHEAD, CHANGES, GOOD, LOOK, ReportData, findings

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
LONG = "site/4/line/2/" + "camera/" * 20 + "frame"
EVIL = "<img src=x onerror=alert(1)>"


def sample() -> ReportData:
    """Every part of the page has something to show."""
    data = ReportData(NOW, 100_000, messages=100_000, bytes=5_000_000, topics=900, retained=800, retained_bytes=60_000)
    data.first, data.last = NOW - timedelta(hours=5), NOW
    data.traffic = {
        kind: [(NOW - timedelta(minutes=n), n + 1) for n in range(300)]
        for kind in ("live", "set", "cleared", "refused")
    }
    data.protocols = [("5.0", 60_000), ("3.1.1", 40_000)]
    data.busiest = [(LONG, 20_000), (EVIL, 500), *((f"site/{n}", 100 - n) for n in range(18))]
    data.biggest = data.busiest
    data.quiet = [("site/1/pump", NOW - timedelta(hours=1), 12.5)]
    data.staleness = [(label, 10) for label, _ in AGES]
    data.churn = [(label, 10) for _, label in CHANGES]
    data.expiry = [(label, 10) for label, _ in AHEAD]
    data.refusals = [("count", 70), ("size", 30)]
    data.device_hours = [NOW - timedelta(hours=n) for n in range(6)]
    data.devices = [(f"1/2/press{n}", [0, 5, 9, 0, 2, n]) for n in range(12)]
    for kind in ("ghost", "discovery", "command", "subtree", "expiring"):
        for number in range(12):
            row = {"kind": kind, "topic": f"{LONG}/{number}", "messages": 1, "bytes": 20, "detail": EVIL}
            data.hygiene.append({**row, "since": NOW})
    return data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build_page(sample()))
    return path


def background(page: Page) -> int:
    """How bright the page is, from 0 to 765."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.strip("rgb()").split(","))


COLOURS = """() => {
    const page = getComputedStyle(document.body).color;
    const said = [...document.querySelectorAll('.chart svg text')].filter(text => text.textContent.trim());
    return [page, [...new Set(said.map(text => getComputedStyle(text).fill))], said.length];
}"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_offline_and_nothing_sticks_out(
    browser: Browser, report: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    page = context.new_page()
    visit = Visit(page, "file://")
    page.goto(f"file://{report}")
    page.wait_for_function("document.querySelectorAll('.chart .main-svg .bglayer').length == 9", timeout=60_000)
    assert page.locator(".chart").count() == 9
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = background(page) < 380
    assert dark == (scheme == "dark")
    for _ in range(2):
        page.click("#theme")
        dark = not dark
        assert (background(page) < 380) == dark
        ink, inks, said = page.evaluate(COLOURS)
        assert inks == [ink]  # words in the charts can be read on the page they stand on
        assert said > 50
    context.close()
    assert visit.problems == []


def test_markup_in_what_was_published_stays_text(browser: Browser, tmp_path: Path) -> None:
    """In lists, in sentences, and in charts, whose labels know some markup of their own."""
    data = sample()
    evil = [EVIL, "</script><script>alert(2)</script>", "<a href='javascript:alert(3)'>x</a>", "<b>bold</b>&amp;"]
    data.busiest = [(name, 40_000) for name in evil]
    data.biggest = data.busiest
    data.protocols = [(name, 1) for name in evil]
    data.devices = [(name, [5] * len(data.device_hours)) for name in evil]
    data.quiet = [(name, NOW, 1.0) for name in evil]
    data.hygiene = [{**data.hygiene[0], "topic": name, "detail": name} for name in evil]
    path = tmp_path / "report.html"
    path.write_text(build_page(data))
    page = browser.new_page()
    visit = Visit(page, "file://")
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    page.goto(f"file://{path}")
    page.wait_for_function("document.querySelectorAll('.chart .main-svg .bglayer').length == 9", timeout=60_000)
    assert page.locator("#quiet td:first-child").all_text_contents() == evil
    assert EVIL in page.locator(".findings").inner_text()
    for chart in ("busiest", "devices"):
        said = page.locator(f"#{chart} .chart text").all_text_contents()
        assert all(any(name in text for text in said) for name in evil), said
    assert page.locator("img").count() == 0
    assert page.locator("svg a").count() == 0
    page.close()
    assert dialogs == []
    assert visit.problems == []


def test_the_first_thing_said_is_what_is_worth_a_look() -> None:
    said = {finding.anchor: finding for finding in findings(sample())}
    assert said["refused"].severity == LOOK
    assert (
        "100 values were not remembered (0.1 % of all messages), 70 of them because: too many" in said["refused"].text
    )
    assert said["ghost"].text.startswith("12 remembered values look left behind")
    assert "sends 20 % of all messages" in said["busiest"].text
    assert "1 topic that used to speak regularly has gone quiet" in said["quiet"].text


def test_nothing_wrong_is_said_too() -> None:
    data = sample()
    data.refusals, data.quiet, data.hygiene, data.busiest = [], [], [], []
    assert [finding.anchor for finding in findings(data) if finding.severity == GOOD] == ["refused", "quiet", "ghost"]
    assert not [finding for finding in findings(data) if finding.severity == LOOK]


def test_every_finding_leads_somewhere() -> None:
    page = build_page(sample())
    for finding in findings(sample()):
        assert f'<section id="{finding.anchor}"' in page


def test_the_report_says_when_passing_messages_are_not_recorded() -> None:
    data = sample()
    assert not [finding for finding in findings(data) if "history.record" in finding.text]
    data.records_live = False
    assert [finding.anchor for finding in findings(data) if "history.record" in finding.text] == ["traffic"]


@pytest.mark.parametrize("name", ["@THEME@", "{{ plotlyjs }}", "{% endfor %}", "{# no #}"])
def test_a_topic_called_like_a_place_in_the_template_is_a_topic(name: str) -> None:
    data = sample()
    data.quiet = [("marked", NOW - timedelta(hours=1), 12.5)]
    plain = build_page(data)
    data.quiet = [(name, NOW - timedelta(hours=1), 12.5)]
    assert build_page(data) == plain.replace("<td>marked</td>", f"<td>{name}</td>")
