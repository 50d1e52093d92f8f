"""The explorer as a person uses it: tree, search, time, what changes while it is read, what is brought back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from axe import serious_findings
from broker_process import BrokerProcess, Unique
from browser_visit import Visit
from http_api import LISTEN, Api, until
from password_file import write_password_file

pytestmark = pytest.mark.timeout(400)

PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
SIZES = [
    PHONE,
    {"viewport": {"width": 768, "height": 1024}},
    {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    {"viewport": {"width": 1920, "height": 1080}},
]
AT = "Number(new URLSearchParams(location.hash.split('?')[1] || '').get('at') || 0)"
IDS = ["390-dark", "768-light", "1280-dark", "1920-light"]


@pytest.fixture
def api(site: BrokerProcess) -> Iterator[Api]:
    with Api(site) as client:
        yield client


def set_slowly(api: Api, topic: str, *texts: str) -> list[int]:
    """Versions of a topic at different times, and when each was set."""
    for text in texts:
        api.set(topic, text)
        time.sleep(0.05)
    return [row["stored_at_ms"] for row in reversed(api.history(topic, len(texts)))]


def at(page: Page) -> int:
    """The moment in the address, 0 for now."""
    found: int = page.evaluate(AT)
    return found


def settled(page: Page) -> None:
    expect(page.locator(".time")).to_be_visible()
    expect(page.locator(".marks rect").first).to_be_attached()


# Links


def test_a_link_opens_the_tree_at_its_topic_and_back_goes_back(visit: Visit, api: Api, unique: Unique) -> None:
    page, deep = visit.page, unique.topic("a/b/c")
    api.set(deep, "deep")
    api.set(unique.topic("a/other"), "other")
    visit.open(f"explorer?topic={deep}")
    expect(page.locator(f"{visit.row(deep)}.selected")).to_be_in_viewport()
    expect(page.locator(".detail pre.payload")).to_have_text("deep")
    page.click(visit.row(unique.topic("a/other")))
    expect(page.locator(".detail pre.payload")).to_have_text("other")
    assert "other" in page.evaluate("location.hash")
    page.go_back()
    expect(page.locator(".detail pre.payload")).to_have_text("deep")
    expect(page.locator(f"{visit.row(deep)}.selected")).to_be_visible()
    page.go_forward()
    page.reload()
    expect(page.locator(".detail pre.payload")).to_have_text("other")
    expect(page.locator(f"{visit.row(unique.topic('a/other'))}.selected")).to_be_visible()


def test_a_link_to_the_last_of_many_siblings_finds_its_row(visit: Visit) -> None:
    visit.open("explorer?topic=fleet/line50/unit999/state")
    expect(visit.page.locator(f"{visit.row('fleet/line50/unit999/state')}.selected")).to_be_in_viewport()


def test_a_moment_and_a_search_are_in_the_link(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    first_ms, _ = set_slowly(api, unique.topic(), "before", "after")
    visit.open(f"explorer?topic={unique.topic()}&at={first_ms}&q={unique}")
    expect(page.locator(".detail pre.payload")).to_have_text("before")
    expect(page.locator(".search")).to_have_value(str(unique))
    expect(page.locator(".found")).to_have_text("1 found")
    page.click("text=Back to now")
    expect(page.locator(".detail pre.payload")).to_have_text("after")
    page.go_back()
    expect(page.locator(".detail pre.payload")).to_have_text("before")


@pytest.mark.parametrize("visit", [PHONE], indirect=True, ids=["390"])
def test_back_on_a_phone_goes_from_the_message_to_the_tree(visit: Visit) -> None:
    page = visit.page
    visit.open("explorer")
    page.tap(visit.row("lamp"))
    page.tap(visit.row("lamp/kitchen"))
    page.tap(visit.row("lamp/kitchen/state"))
    expect(page.locator(".detail pre.payload")).to_be_visible()
    page.go_back()
    expect(page.locator(".tree")).to_be_visible()
    expect(page.locator(visit.row("lamp/kitchen/state"))).to_be_visible()


# Tree and search


def test_nothing_is_marked_before_something_is_chosen(visit: Visit, api: Api, unique: Unique) -> None:
    api.set(f"/{unique}", "below an empty level")
    visit.open("explorer")
    expect(visit.page.locator(visit.row(""))).to_have_text("▸(empty)1")
    expect(visit.page.locator(".row.selected")).to_have_count(0)


def test_the_tree_is_walked_with_the_keyboard_and_tells_a_screen_reader(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    for name in ("one/x", "one/y", "three", "two"):
        api.set(unique.topic(name), name)
    visit.open(f"explorer?topic={unique}")
    expect(page.locator(f"{visit.row(str(unique))}.selected")).to_be_visible()
    tree = page.locator(".tree")
    tree.focus()

    def here(path: str) -> None:
        expect(page.locator(f"{visit.row(path)}.active[aria-selected=true]")).to_be_visible()
        row = page.locator(visit.row(path))
        expect(tree).to_have_attribute("aria-activedescendant", str(row.get_attribute("id")))

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)

    press("ArrowRight")
    expect(page.locator(visit.row(unique.topic("two")))).to_be_visible()
    press("ArrowRight")
    here(unique.topic("one"))
    press("ArrowRight")
    expect(page.locator(visit.row(unique.topic("one/x")))).to_be_visible()
    press("ArrowDown", "ArrowDown")
    here(unique.topic("one/y"))
    row = page.locator(visit.row(unique.topic("one/y")))
    assert [row.get_attribute(f"aria-{name}") for name in ("level", "posinset", "setsize")] == ["3", "2", "2"]
    expect(page.locator(".detail pre.payload")).to_have_text("one/y")
    press("ArrowLeft")
    here(unique.topic("one"))
    press("t")
    here(unique.topic("three"))
    page.wait_for_timeout(900)  # what is typed after a while is a new word
    press("t", "w")
    here(unique.topic("two"))
    press("Home")
    expect(page.locator(".row").first).to_have_attribute("aria-selected", "true")
    press("End", "PageUp", "PageDown")
    last = page.evaluate("Math.max(...[...document.querySelectorAll('.row')].map((row) => parseInt(row.style.top)))")
    assert f"top: {last}px" in str(page.locator(".row.active").get_attribute("style"))
    press("/")
    expect(page.locator(".search")).to_be_focused()


def test_a_search_keeps_the_tree_and_says_how_many(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    api.set(unique.topic("Cellar/pump"), "1")
    api.set(unique.topic("roof"), "beside the CELLAR door")
    visit.open("explorer")
    page.fill(".search", "cellar")
    expect(page.locator(".found")).to_have_text("2 found")
    expect(page.locator(visit.row(unique.topic("Cellar")))).to_be_visible()
    expect(page.locator(visit.row(unique.topic("Cellar/pump")))).to_have_attribute("aria-level", "3")
    expect(page.locator(visit.row(unique.topic("roof")))).to_be_visible()
    expect(page.locator(visit.row("fleet"))).to_have_count(0)
    page.fill(".search", "RUNNING")
    expect(page.locator(".found")).to_have_text("200 of 100,000 found")
    page.fill(".search", "")
    expect(page.locator(visit.row("fleet"))).to_be_visible()


def test_a_search_finds_what_a_client_published(visit: Visit, api: Api, unique: Unique) -> None:
    with api.broker.client() as client:
        client.connect(unique.client("Sensor"))
        client.publish(unique.topic("quiet"), b"1", qos=1, retain=True)
    visit.open("explorer")
    visit.page.fill(".search", unique.client("sensor"))
    expect(visit.page.locator(".found")).to_have_text("1 found")
    expect(visit.page.locator(visit.row(unique.topic("quiet")))).to_be_visible()


def test_a_search_in_the_past_that_is_left_says_nothing_later(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    first_ms, _ = set_slowly(api, unique.topic("a"), "1", "2")
    api.set(unique.topic("b"), "1")
    held: list[Route] = []
    page.route("**/api/v1/retained/at?*search*", lambda route: held.append(route))
    visit.open(f"explorer?at={first_ms}&q={unique}")
    while not held:
        page.wait_for_timeout(50)
    page.click("text=Back to now")
    expect(page.locator(".found")).to_have_text("2 found")
    for route in held:
        route.continue_()
    page.wait_for_timeout(300)
    expect(page.locator(".found")).to_have_text("2 found")


# Time


def test_the_slider_stays_under_the_pointer(visit: Visit, api: Api) -> None:
    page = visit.page
    visit.open("explorer")
    settled(page)
    before = page.locator(".slider").bounding_box()
    assert before is not None
    y = before["y"] + before["height"] / 2
    page.mouse.move(before["x"] + before["width"] - 5, y)
    page.mouse.down()
    parts = []
    for part in (0.95, 0.9, 0.8, 0.7):
        page.mouse.move(before["x"] + before["width"] * part, y)
        parts.append(page.locator(".slider").evaluate("one => Number(one.value) / 1000"))
        assert page.locator(".slider").bounding_box() == before
    page.mouse.up()
    assert parts == pytest.approx([0.95, 0.9, 0.8, 0.7], abs=0.02)
    expect(page.locator("text=Back to now")).to_be_visible()
    assert page.locator(".slider").bounding_box() == before


def test_one_moment_is_the_same_everywhere_on_the_page(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    first_ms, _ = set_slowly(api, unique.topic(), "before", "after")
    visit.open(f"explorer?topic={unique.topic()}&at={first_ms}")
    settled(page)
    expect(page.locator(".detail .note")).to_contain_text("As it was")
    told = str(page.locator(".detail .note").text_content()).removeprefix("As it was ").removesuffix(".")
    page.wait_for_timeout(1500)  # a clock that counted would show another second
    expect(page.locator(".moment")).to_contain_text(told)
    expect(page.locator(".detail .note")).to_contain_text(told)
    assert page.locator(".date").input_value().endswith(f"{first_ms % 60000 / 1000:06.3f}".rstrip("0").rstrip("."))


def test_a_moment_is_typed_and_stepped_to_from_change_to_change(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()
    times = set_slowly(api, topic, "one", "two", "three")
    visit.open(f"explorer?topic={topic}")
    settled(page)
    payload = page.locator(".detail pre.payload")
    for text, ms in (("three", times[2]), ("two", times[1]), ("one", times[0])):
        page.click(".earlier")
        expect(payload).to_have_text(text)
        page.wait_for_function(f"() => Math.abs({AT} - {ms}) <= 1", timeout=60_000)
    page.click(".later")
    expect(payload).to_have_text("two")
    field = page.evaluate(
        "ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, -1)", times[0] + 1
    )
    page.fill(".date", field)
    expect(payload).to_have_text("one")
    assert at(page) == times[0] + 1
    page.click(".later")
    page.click(".later")
    expect(payload).to_have_text("three")
    page.click(".later")
    expect(page.locator(".moment")).to_have_text("now, live")


def test_zoom_makes_a_step_of_the_slider_small_and_marks_what_changed(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    _, second_ms, _ = set_slowly(api, unique.topic(), "one", "two", "three")
    visit.open(f"explorer?topic={unique.topic()}&at={second_ms}")
    settled(page)
    expect(page.locator(".marks .own").first).to_be_attached()
    for _ in range(12):
        if page.locator(".closer").is_enabled():
            page.click(".closer")
    expect(page.locator(".closer")).to_be_disabled()
    assert at(page) == second_ms
    page.locator(".slider").focus()
    page.keyboard.press("ArrowLeft")
    until(lambda: at(page), lambda ms: 0 < second_ms - ms < 10)
    page.click(".whole")
    expect(page.locator(".wider")).to_be_disabled()


def test_the_history_of_a_past_moment_ends_there_and_marks_what_was_in_force(
    visit: Visit, api: Api, unique: Unique
) -> None:
    page, topic = visit.page, unique.topic()
    _, second_ms, _ = set_slowly(api, topic, "one", "two", "three")
    visit.open(f"explorer?topic={topic}&at={second_ms}")
    rows = page.locator(".versions tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("in force then")
    expect(rows.first).to_contain_text("two")
    visit.open(f"explorer?topic={unique}&at={second_ms}")
    expect(page.locator(".below")).to_contain_text("1 message")
    visit.open(f"explorer?topic={topic}")
    expect(rows).to_have_count(3)
    expect(page.locator(".versions tr.current")).to_contain_text("three")
    assert "." in str(page.locator(".versions .at").first.text_content())  # milliseconds


def test_two_equal_versions_have_no_difference(visit: Visit, api: Api, unique: Unique) -> None:
    set_slowly(api, unique.topic(), "same", "same")
    visit.open(f"explorer?topic={unique.topic()}")
    expect(visit.page.locator(".difference")).to_contain_text("No difference")


# What changes while it is read


def test_nothing_that_is_held_is_taken_away_by_an_update(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()

    def value(level: int) -> str:
        return json.dumps({"kw": level, "kwh": 100 + level, "names": [f"n{i}" for i in range(60)]})

    set_slowly(api, topic, *(value(level) for level in range(4)))
    visit.open(f"explorer?topic={topic}")
    expect(page.locator(".versions tbody tr")).to_have_count(4)
    page.locator(".numbers select").select_option("kwh")
    boxes = page.locator(".versions input")
    boxes.nth(3).check()
    boxes.nth(2).check()
    oldest = page.locator(".versions tbody tr").nth(3).get_attribute("data-version")
    page.locator(".detail pre.payload").evaluate("one => { one.scrollTop = 120 }")
    page.locator(".detail").evaluate("one => { one.scrollTop = 150 }")
    difference = page.locator(".difference h4").text_content()
    api.set(topic, value(4))
    expect(page.locator(".versions tbody tr")).to_have_count(5)
    expect(page.locator(".detail pre.payload")).to_contain_text('"kw": 4')
    assert page.locator(".detail").evaluate("one => one.scrollTop") == 150
    assert page.locator(".detail pre.payload").evaluate("one => one.scrollTop") == 120
    expect(page.locator(".numbers select")).to_have_value("kwh")
    expect(page.locator(f"tr[data-version='{oldest}'] input")).to_be_checked()
    expect(page.locator(".versions input:checked")).to_have_count(2)
    expect(page.locator(".difference h4")).to_have_text(str(difference))

    page.evaluate("getSelection().selectAllChildren(document.querySelector('.detail pre.payload'))")
    api.set(topic, value(5))
    expect(page.locator(".newer")).to_be_visible()
    assert '"kw": 4' in page.evaluate("getSelection().toString()")
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator(".detail pre.payload")).to_contain_text('"kw": 5')
    expect(page.locator(".newer")).to_be_hidden()


def test_a_page_that_is_paused_stands_still(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()
    api.set(topic, "before")
    visit.open(f"explorer?topic={topic}")
    expect(page.locator(".detail pre.payload")).to_have_text("before")
    page.click(".pause")
    api.set(topic, "after")
    expect(page.locator(".pause")).to_contain_text("new")
    expect(page.locator(".detail pre.payload")).to_have_text("before")
    page.click(".pause")
    expect(page.locator(".detail pre.payload")).to_have_text("after")
    expect(page.locator(f"{visit.row(topic)} .preview")).to_have_text("after")


# What is brought back


def test_a_version_is_restored_with_a_preview(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()
    set_slowly(api, topic, "good", "bad")
    visit.open(f"explorer?topic={topic}")
    page.locator(".versions .restore").nth(1).click()
    expect(page.locator("dialog .sample")).to_contain_text(f"replaced {topic}")
    assert api.ok("GET", "/api/v1/retained/message", params={"topic": topic})["text"] == "bad"
    page.click("dialog button.main")
    expect(page.locator(".detail pre.payload")).to_have_text("good")
    expect(page.locator(".versions tbody tr")).to_have_count(3)


def test_a_subtree_is_restored_to_a_moment_and_that_is_undone_after_a_reload(
    visit: Visit, api: Api, unique: Unique
) -> None:
    page = visit.page
    for name in ("changed", "gone"):
        api.set(unique.topic(name), "then")
    then_ms = set_slowly(api, unique.topic("same"), "then")[0]
    api.set(unique.topic("changed"), "now")
    api.set(unique.topic("came"), "now")
    api.ok("DELETE", "/api/v1/retained/message", params={"topic": unique.topic("gone")})
    api.history(unique.topic("gone"), 2)
    visit.open(f"explorer?topic={unique}&at={then_ms}")
    expect(page.locator(".below")).to_contain_text("3 messages")
    page.click(".subtree")
    expect(page.locator("dialog .sample")).to_have_text(f"restored {unique.topic('gone')}")
    page.check("dialog input[value=exact]")
    expect(page.locator("dialog .sample")).to_contain_text(f"removed {unique.topic('came')}")
    expect(page.locator("dialog .sample")).to_contain_text(f"replaced {unique.topic('changed')}")
    page.click("dialog button.main")
    expect(page.locator(".toast").last).to_contain_text("Brought back 2, deleted 1")
    names = sorted(api.topics(filter=unique.topic("#")))
    assert names == [unique.topic(one) for one in ("changed", "gone", "same")]
    page.goto("about:blank")
    visit.open("explorer")
    page.click(".operations-of")
    newest = page.locator("dialog tbody tr").first
    expect(newest).to_contain_text("deleted 1, set 2")
    newest.locator("button").click()
    expect(page.locator("dialog").last.locator(".sample")).to_contain_text(f"removed {unique.topic('gone')}")
    page.locator("dialog").last.locator("button.main").click()
    expect(page.locator(".toast").last).to_contain_text("Brought back 2, deleted 1")
    names = sorted(api.topics(filter=unique.topic("#")))
    assert names == [unique.topic(one) for one in ("came", "changed", "same")]


# Publishing


def test_the_publish_dialog_keeps_what_was_typed_and_enter_sends_it(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    visit.open("explorer")
    page.click(".bar button:has-text('Publish')")
    page.fill("dialog input[name=topic]", unique.topic("+"))
    page.fill("dialog textarea", '{"a": 1')
    expect(page.locator("dialog .check-of")).to_contain_text("Not valid JSON")
    page.press("dialog input[name=topic]", "Enter")
    expect(page.locator("dialog .problem")).to_contain_text("wildcard")
    expect(page.locator("dialog textarea")).to_have_value('{"a": 1')
    page.keyboard.press("Escape")
    page.click(".bar button:has-text('Publish')")
    expect(page.locator("dialog textarea")).to_have_value('{"a": 1')  # also after it was closed by mistake
    page.fill("dialog input[name=topic]", unique.topic())
    page.fill("dialog textarea", '{"a": 12345678901234567890}')
    expect(page.locator("dialog .check-of")).to_have_text("Valid JSON")
    page.click("dialog .neat")
    expect(page.locator("dialog textarea")).to_have_value('{\n  "a": 12345678901234567890\n}')
    page.click("dialog .add")
    page.locator("dialog .property").nth(0).fill("unit")
    page.locator("dialog .property").nth(1).fill("kWh")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    message = api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic()})
    assert (message["text"], message["user_properties"]) == (
        '{\n  "a": 12345678901234567890\n}',
        [["unit", "kWh"]],
    )


def test_a_file_is_published_byte_for_byte(visit: Visit, api: Api, unique: Unique) -> None:
    page = visit.page
    large = bytes(range(256)) * 1000
    visit.open("explorer")
    for name, content in (("small.bin", b"\xff\x00\x01"), ("large.bin", large)):
        page.click(".bar button:has-text('Publish')")
        page.fill("dialog input[name=topic]", unique.topic(name))
        page.set_input_files(
            "dialog input[type=file]", {"name": name, "mimeType": "application/x-thing", "buffer": content}
        )
        expect(page.locator("dialog input[name=content_type]")).to_have_value("application/x-thing")
        page.press("dialog input[name=topic]", "Enter")
        expect(page.locator("dialog")).to_have_count(0)
        payload = api.get("/api/v1/retained/message/payload", params={"topic": unique.topic(name)})
        assert payload.content == content


# The payload


def test_json_is_coloured_folded_and_shown_as_it_was_sent(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()
    api.set(topic, '{"long":12345678901234567890,"in":{"x":[1,2]},"text":"<b>"}')
    visit.open(f"explorer?topic={topic}")
    payload = page.locator(".detail pre.payload")
    expect(payload).to_contain_text('"long": 12345678901234567890')
    assert payload.locator(".digits").count() == 3
    payload.locator(".fold").nth(1).click()
    expect(payload.locator(".digits").nth(1)).to_be_hidden()
    api.set(topic, '{"long":1,"in":{"x":[1,2]},"text":"new"}')
    expect(payload).to_contain_text("new")
    expect(payload.locator(".digits").nth(1)).to_be_hidden()  # what is folded stays folded


def test_a_topic_is_copied(browser: Browser, site: BrokerProcess, api: Api, unique: Unique) -> None:
    api.set(unique.topic(), "1")
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{site.ports['http']}/#explorer?topic={unique.topic()}")
    page.click(".copy-topic")
    expect(page.locator(".toast")).to_contain_text("Copied the topic")
    assert page.evaluate("navigator.clipboard.readText()") == unique.topic()
    context.close()


# Who sees what


def test_an_empty_broker_shows_how_to_send_the_first_message(
    browser: Browser, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(listen=LISTEN)
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{broker.ports['http']}/#explorer")
    expect(page.locator(".begin")).to_contain_text(f"holdfast pub -p {broker.port} -r -t hello/world")
    assert serious_findings(page) == []
    page.click(".begin .first")
    expect(page.locator("dialog input[name=topic]")).to_have_value("hello/world")
    page.fill("dialog textarea", "it works")
    page.press("dialog input[name=topic]", "Enter")
    expect(page.locator('.row[data-path="hello"]')).to_be_visible()
    expect(page.locator(".begin")).to_have_count(0)
    page.close()


RULES = """
[[access]]
permission = "allow"
action = "all"
filter = "house/%u/#"
"""


def test_a_user_sees_own_topics_and_is_told_why_there_are_none(
    browser: Browser, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text(RULES)
    users = write_password_file(tmp_path / "users", {"bob": "b", "eve": "e", "boss": "c"})
    broker = start_broker(
        listen=LISTEN, args=("--config", str(config)), auth__password_file=users, api__admins='["boss"]'
    )
    with Api(broker, auth=("boss", "c")) as boss:
        boss.set("house/bob/lamp", "on")
        boss.set("other/lamp", "off")

    def enter(name: str, password: str) -> Page:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{broker.ports['http']}/#explorer")
        page.fill("input[name=username]", name)
        page.fill("input[name=password]", password)
        page.click(".login button")
        return page

    page = enter("bob", "b")
    page.click('.row[data-path="house"]')
    page.click('.row[data-path="house/bob"]')
    page.click('.row[data-path="house/bob/lamp"]')
    expect(page.locator(".detail pre.payload")).to_have_text("on")
    expect(page.locator('.row[data-path="other"]')).to_have_count(0)
    expect(page.locator(".toast")).to_have_count(0)
    page.click(".detail .edit")
    page.fill("dialog textarea", "dimmed")
    page.click("dialog button.main")
    expect(page.locator(".detail pre.payload")).to_have_text("dimmed")
    page.close()
    page = enter("eve", "e")
    expect(page.locator(".begin")).to_contain_text("You are logged in as eve")
    expect(page.locator(".begin")).to_contain_text("api.admins")
    expect(page.locator(".tree")).to_contain_text("no topic that you may read")
    page.close()


# Any size, any eyes


@pytest.mark.parametrize("visit", SIZES, indirect=True, ids=IDS)
def test_the_explorer_fits_and_axe_finds_nothing_serious(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic("one-long-level-that-needs-its-room/state")
    width = page.viewport_size["width"] if page.viewport_size else 0
    times = set_slowly(api, topic, '{"level": 1, "text": "' + "long " * 60 + '"}', '{"level": 2}')

    def check(what: str) -> None:
        assert page.evaluate("document.documentElement.scrollWidth") <= width, what
        assert serious_findings(page) == [], what

    visit.open("explorer")
    expect(page.locator(visit.row("fleet"))).to_be_visible()
    check("tree")
    visit.open(f"explorer?topic={topic}")
    expect(page.locator(".versions tbody tr")).to_have_count(2)
    check("message")
    visit.open(f"explorer?topic={topic}&at={times[0]}")
    settled(page)
    expect(page.locator(".versions tbody tr")).to_have_count(1)
    check("past")
    page.locator(".detail .restore").first.click()
    expect(page.locator("dialog .preview-of b")).to_be_visible()
    check("restore")
    page.keyboard.press("Escape")
    visit.open("explorer?q=level")
    expect(page.locator(".found")).to_contain_text("found")
    check("search")
    page.click(".bar button:has-text('Publish')")
    page.click("dialog .add")
    check("publish")
    page.keyboard.press("Escape")
    page.click(".operations-of")
    expect(page.locator("dialog tbody tr").first).to_be_visible()
    check("operations")


@pytest.mark.parametrize("visit", [PHONE], indirect=True, ids=["390"])
def test_a_finger_finds_room_on_a_phone(visit: Visit, api: Api, unique: Unique) -> None:
    page, topic = visit.page, unique.topic()
    set_slowly(api, topic, "one", "x" * 500)
    sizes = """selector => [...document.querySelectorAll(selector)].filter((one) => one.offsetParent)
        .map((one) => [one.className, one.getBoundingClientRect().height, one.getBoundingClientRect().right])"""
    visit.open("explorer")
    expect(page.locator(visit.row("fleet"))).to_be_visible()
    found = page.evaluate(sizes, ".explorer .row, .explorer .bar button, .time button, .search, .date")
    visit.open(f"explorer?topic={topic}")
    expect(page.locator(".versions tbody tr")).to_have_count(2)
    found += page.evaluate(sizes, ".detail button:not(.fold), .detail .button, .versions td")
    assert [one for one in found if one[1] < 44 and "row" in one[0]] == []
    cells: list[Any] = page.evaluate(sizes, ".versions td")
    assert [one for one in found if one not in cells and one[1] < 44] == []
    assert [one for one in found if one[2] > 390] == []
