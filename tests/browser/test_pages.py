"""The pages beside the explorer, the frame around them, and what they show while the broker is away."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from axe import serious_findings
from broker_process import BrokerProcess, Unique, start_holdfast
from browser_visit import Visit, broken_titles
from http_api import LISTEN, Api, until
from password_file import write_password_file

pytestmark = pytest.mark.timeout(400)

PAGES = ("overview", "hygiene", "clients", "denials", "bans", "users", "settings")
SCREENS = [
    {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True},
    {"viewport": {"width": 768, "height": 1024}, "color_scheme": "light"},
    {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    {"viewport": {"width": 1920, "height": 1080}, "color_scheme": "light"},
]
RULES = """\
[[access]]
permission = "allow"
action = "all"
filter = "home/%u/#"
group = "family"

[[access]]
permission = "deny"
action = "all"
filter = "secret/#"

[[access]]
permission = "allow"
action = "all"
filter = "#"
user = "anna"

[[auth.group]]
name = "family"
users = ["bob"]

[bans]
client_ids = ["noisy"]
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with users, rules, clients, findings and denials."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "rules.toml").write_text(RULES)
    settings = {
        "auth.password_file": write_password_file(folder / "users", {"anna": "pw1", "bob": "pw2"}),
        "api.admins": "anna",
        "callback.cache": "45s",
    }
    running = start_holdfast(folder / "data", settings, listen=LISTEN, args=["--config", str(folder / "rules.toml")])
    with Api(running, auth=("anna", "pw1")) as api:
        for number in range(25):
            config = f"homeassistant/sensor/sensor_with_a_long_name_{number:02}/temperature/config"
            api.set(config, json.dumps({"state_topic": f"zigbee2mqtt/sensor_{number:02}"}))
        api.set("lamp/kitchen/set", "ON")
        api.set("site/gate", "open", expiry_s=1800)
    with ExitStack() as stack:
        clients = [stack.enter_context(running.client(5)) for _ in range(30)]
        for number, client in enumerate(clients):
            client.connect(f"sensor-{number:02}", username="bob", password=b"pw2", keep_alive=0)
        clients[0].subscribe("home/bob/#", qos=1)
        clients[1].publish("secret/door", b"1", qos=1, check=False)
        with running.client(5) as stranger:
            stranger.connect("stranger", username="root", password=b"toor", check=False)
        yield running
    assert "Traceback" not in running.output, running.output
    running.stop()


@pytest.fixture
def api(house: BrokerProcess) -> Iterator[Api]:
    with Api(house, auth=("anna", "pw1")) as client:
        yield client


@pytest.fixture
def anna(browser: Browser, house: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Logged in."""
    options = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    opened = Visit(context.new_page(), f"http://127.0.0.1:{house.ports['http']}")
    log_in(opened.page, opened.base, "anna", "pw1")
    yield opened
    context.close()
    assert opened.problems == []


def log_in(page: Page, base: str, name: str, password: str) -> None:
    page.goto(f"{base}/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.click(".login button")
    expect(page.locator("h1")).to_have_text("Overview")


def settled(page: Page, name: str) -> None:
    """The page has been given what it shows."""
    ready = {
        "overview": ".machine .card",
        "hygiene": ".report .card",
        "clients": "tr.pick",
        "denials": "tbody tr",
        "bans": "tbody tr",
        "users": "tbody tr",
        "settings": ".sections tbody tr",
    }
    expect(page.locator(ready[name]).first).to_be_attached(timeout=60_000)


@pytest.mark.parametrize("anna", SCREENS, indirect=True, ids=["390-dark", "768", "1280-dark", "1920"])
def test_every_page_fits_breaks_no_word_and_axe_finds_nothing_serious(anna: Visit) -> None:
    page = anna.page
    assert page.viewport_size is not None
    width = page.viewport_size["width"]
    for name in PAGES:
        anna.open(name)
        settled(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert serious_findings(page) == [], name
        assert broken_titles(page) == [], name
        assert page.evaluate(CUT) == [], name
        if width < 400:
            assert small_targets(page) == [], name


CUT = """[...document.querySelectorAll('.list .scroll')].filter((one) => one.scrollWidth > one.clientWidth)
    .map((one) => `${one.getAttribute('aria-label')}: ${one.scrollWidth} in ${one.clientWidth}`)"""


def small_targets(page: Page) -> list[str]:
    """What is to be touched and is less than 44 pixels high."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('main button, main select, nav a, header button')].filter((one) =>
            one.offsetParent && one.closest('thead') === null && one.getBoundingClientRect().height < 43.5
        ).map((one) => one.outerHTML.slice(0, 120))"""
    )
    return found


def test_nothing_of_the_pages_is_shown_before_the_login_and_admin_pages_to_admins_only(
    browser: Browser, house: BrokerProcess
) -> None:
    page = browser.new_page()
    base = f"http://127.0.0.1:{house.ports['http']}"
    page.goto(base)
    expect(page.locator(".login")).to_be_visible()
    expect(page).to_have_title("Log in · Holdfast")
    expect(page.locator("#nav")).to_be_hidden()
    expect(page.locator("#docs")).to_be_hidden()
    log_in(page, base, "bob", "pw2")
    assert page.locator("#nav a").all_text_contents() == ["Overview", "Explorer"]
    page.click("#logout")
    expect(page.locator(".login")).to_be_visible()
    log_in(page, base, "anna", "pw1")
    expect(page.locator("#nav a")).to_have_count(9)
    expect(page.locator("#docs")).to_have_attribute("href", "/docs")
    page.close()


def test_each_page_has_a_title_and_the_buttons_of_the_frame_have_words(anna: Visit) -> None:
    page = anna.page
    anna.open("settings")
    expect(page).to_have_title("Settings · Holdfast")
    anna.open("clients")
    expect(page).to_have_title("Clients · Holdfast")
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.get_by_role("button", name=re.compile("Theme: auto"))).to_be_visible()


def test_problems_resources_and_listeners_are_on_the_overview(anna: Visit) -> None:
    page = anna.page
    anna.open("overview")
    for title in ("Connections", "Retained", "Queued", "Memory", "Disk free", "History"):
        expect(page.locator(".number", has_text=title).locator("b")).not_to_have_text("")
    expect(page.locator(".number", has_text="History")).to_contain_text("up to date")
    expect(page.locator(".machine .card", has_text="Listeners")).to_contain_text(anna.base)
    expect(page.locator(".machine .card", has_text="Refused and dropped")).to_contain_text("not authorized")
    page.locator(".machine a", has_text="not authorized").click()
    expect(page.locator("h1")).to_have_text("Denials")
    expect(page.locator("tbody tr").first).to_contain_text("secret/door")


def test_charts_have_axes_ranges_and_a_crosshair(anna: Visit) -> None:
    page = anna.page
    anna.open("overview")
    chart = page.locator(".chart").first
    expect(chart.locator(".tick.time").first).to_be_attached()
    assert chart.locator(".tick.value").first.text_content() == "0"
    page.locator(".ranges button", has_text="1 h").click()
    assert page.url.endswith("#overview?range=1h")
    expect(page.locator(".ranges button[aria-pressed=true]")).to_have_text("1 h")
    times = chart.locator(".tick.time").all_text_contents()
    assert all(re.fullmatch(r"\d\d:\d\d", one) for one in times)
    page.get_by_role("button", name="5 min", exact=True).click()
    box = chart.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 60)
    expect(page.locator(".tip:not([hidden])")).to_have_count(page.locator(".chart").count())  # all charts show the time
    expect(chart.locator(".crosshair")).to_be_attached()
    expect(chart.locator(".tip")).to_contain_text("in ")
    chart.locator(".plot").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator(".tip")).to_be_visible()
    page.keyboard.press("Escape")
    expect(chart.locator(".tip")).to_be_hidden()
    memory = page.locator(".chart", has_text="Memory of the broker")
    assert all("iB" in one or one == "0 B" for one in memory.locator(".tick.value").all_text_contents())


STEPS = """async () => {
    const { chart } = await import(document.querySelector('script[src*=main]').src.replace('main.js', 'chart.js'));
    const made = chart('Switch', { points: true, fromZero: false });
    document.querySelector('main').append(made.element);
    made.draw([0, 60000, 120000], [{ name: 'on', values: [0, 1, 0] }], '');
    const drawn = made.element.querySelector('path.line').getAttribute('d');
    const empty = chart('Nothing', { fromZero: false, whole: true });
    empty.draw([0, 1000], [{ name: 'n', values: [0, 0] }], '');
    const ticks = [...empty.element.querySelectorAll('.tick.value')].map((one) => one.textContent);
    made.element.remove();
    return [drawn, ticks];
}"""


def test_values_that_hold_are_drawn_as_steps_and_no_axis_goes_below_nothing(anna: Visit) -> None:
    anna.open("settings")
    path, ticks = anna.page.evaluate(STEPS)
    points = [tuple(map(float, one.split(","))) for one in path.removeprefix("M").split(" L")]
    assert len(points) == 5  # every change has a corner
    for (x, y), (next_x, next_y) in pairwise(points):
        assert x == next_x or y == next_y
    assert ticks == ["0", "1"]


def test_the_clients_page_keeps_scroll_focus_and_selection_while_it_is_refreshed(anna: Visit) -> None:
    page = anna.page
    page.set_viewport_size({"width": 1280, "height": 500})
    anna.open("clients")
    expect(page.locator("tr.pick")).to_have_count(30)
    page.locator("input[data-client=sensor-20]").check()
    page.locator("tr[data-key=sensor-21] .link").focus()
    scroll = page.locator(".clients .scroll")
    scroll.evaluate("one => { one.scrollTop = 300 }")
    before = scroll.evaluate("one => one.scrollTop")
    assert before > 0
    for _ in range(2):
        with page.expect_response(lambda response: "/api/v1/clients" in response.url):
            pass
    page.wait_for_timeout(200)
    assert scroll.evaluate("one => one.scrollTop") == before
    assert page.evaluate("document.activeElement.textContent") == "sensor-21"
    assert page.locator("input[data-client=sensor-20]").is_checked()


def test_the_list_of_clients_has_the_height_that_there_is(anna: Visit) -> None:
    page = anna.page
    page.set_viewport_size({"width": 1280, "height": 1000})
    anna.open("clients")
    settled(page, "clients")
    box = page.locator(".clients .list").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] > 950


def test_clients_are_sorted_filtered_and_linked_to(anna: Visit) -> None:
    page = anna.page
    anna.open("clients")
    settled(page, "clients")
    page.get_by_role("button", name="Filters").click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("Filters"))
    expect(page.locator("tr.pick").first).to_contain_text("sensor-00")
    page.fill(".search", "BOB")
    expect(page.locator("p[role=status]")).to_have_text("30 clients")
    page.fill(".search", "sensor-07")
    expect(page.locator("tr.pick")).to_have_count(1)
    page.locator("tr.pick").click()
    expect(page.locator(".detailed")).to_contain_text("MQTT 5.0")
    page.reload()
    expect(page.locator(".detailed h2")).to_have_text("sensor-07")
    expect(page.locator(".search")).to_have_value("sensor-07")


def test_several_clients_are_disconnected_at_once(anna: Visit, house: BrokerProcess, unique: Unique) -> None:
    page = anna.page
    with house.client() as one, house.client() as other:
        for client, name in ((one, "one"), (other, "other")):
            client.connect(unique.client(name), username="anna", password=b"pw1")
        anna.open(f"clients?search={unique}")
        expect(page.locator("tr.pick")).to_have_count(2)
        page.get_by_label("Select all on this page").check()
        page.get_by_role("button", name="Disconnect 2").click()
        expect(page.locator("dialog .sample li")).to_have_count(2)
        page.click("dialog button.danger")
        one.expect_closed()
        other.expect_closed()
    expect(page.locator("tr.pick")).to_have_count(0)


def test_a_client_that_goes_while_it_is_looked_at_is_no_error(
    anna: Visit, house: BrokerProcess, unique: Unique
) -> None:
    """The list may be older than the client's end by as long as it takes to come."""
    page = anna.page
    name = unique.client()
    with house.client(5) as guest:
        guest.connect(name, username="bob", password=b"pw2")
        page.goto(f"{anna.base}/#clients?search={name}&client={name}")
        expect(page.locator(".detailed h3")).to_have_text("Subscriptions: 0")
        guest.subscribe("home/bob/a", "home/bob/b")
        expect(page.locator(".detailed h3")).to_have_text("Subscriptions: 2")
        with page.expect_response("**/api/v1/clients?*") as before:
            pass
        old = before.value.text()
        page.route("**/api/v1/clients?*", lambda route: route.fulfill(body=old, content_type="application/json"))
    expect(page.locator(".detailed h3")).to_have_text("Subscriptions: 0")


def test_a_client_is_banned_and_the_ban_is_lifted(anna: Visit, house: BrokerProcess, unique: Unique) -> None:
    page = anna.page
    name = unique.client("loud")
    with house.client() as client:
        client.connect(name, username="anna", password=b"pw1")
        anna.open(f"clients?search={name}&client={name}")
        size = "(one) => getComputedStyle(one).fontSize"
        sizes = {page.locator(f".detailed .{name}").evaluate(size) for name in ("ends", "bans")}
        assert len(sizes) == 1
        page.click(".detailed .bans")
        page.fill("dialog input[name=reason]", "too loud")
        page.click("dialog button.danger")
        expect(page.locator(".toast")).to_contain_text("Banned")
        client.expect_closed()
    anna.open("bans")
    row = page.locator("tbody tr", has_text=name)
    expect(row).to_contain_text("too loud")
    expect(page.locator("tbody tr", has_text="noisy")).to_contain_text("configuration")
    row.get_by_role("button").click()
    page.click("dialog button.main")
    expect(row).to_have_count(0)
    with house.client() as client:
        client.connect(name, username="anna", password=b"pw1")


def test_an_address_that_makes_no_sense_is_told_in_the_dialog(anna: Visit) -> None:
    page = anna.page
    anna.open("bans")
    page.click(".add")
    page.select_option("dialog select[name=kind]", "peerhost")
    page.fill("dialog input[name=who]", "not an address")
    anna.problems.clear()
    page.click("dialog button.danger")
    expect(page.locator("dialog .problem")).to_contain_text("expected an address")
    page.click("dialog button:has-text('Cancel')")
    anna.problems.clear()  # Chromium writes the status 400 to the console


def test_denials_are_listed_and_searched(anna: Visit) -> None:
    page = anna.page
    anna.open("denials")
    row = page.locator("tbody tr", has_text="secret/door")
    expect(row).to_contain_text("publish denied")
    expect(row).to_contain_text("bob")
    page.fill(".search", "ro***")  # of a name that nobody has, no more is kept
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("login failed")


def test_settings_are_shown_with_where_they_came_from(anna: Visit) -> None:
    page = anna.page
    anna.open("settings")
    page.fill(".search", "callback.cache")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("45s")
    expect(row).to_contain_text('default "30s"')
    page.fill(".search", "")
    page.get_by_label("Only what is not the default").check()
    expect(page.locator("tbody tr", has_text="auth.password_file")).to_contain_text("users")
    expect(page.locator("tbody tr", has_text="durability")).to_have_count(0)


def test_users_and_rules_are_shown_and_asked(anna: Visit) -> None:
    page = anna.page
    anna.open("users")
    expect(page.locator("tbody tr", has_text="anna").first).to_contain_text("administrator")
    expect(page.locator("tbody tr", has_text="secret/#")).to_contain_text("deny")
    page.fill("input[name=user]", "bob")
    page.fill("input[name=topic]", "secret/door")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".answer")).to_contain_text("denied")
    page.fill("input[name=topic]", "home/bob/lamp")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("allowed")


def test_every_finding_has_its_action_and_counts_are_true(anna: Visit, api: Api, unique: Unique) -> None:
    page = anna.page
    for number in range(3):
        api.set(
            f"homeassistant/sensor/{unique}-{number}/config", json.dumps({"state_topic": unique.topic(str(number))})
        )
    api.set(unique.topic("lamp/set"), "ON")
    api.set(unique.topic("soon"), "x", expiry_s=600, user_properties=[["a", "b"]])
    found = api.ok("GET", "/api/v1/hygiene", params={"limit": 1000})
    anna.open("hygiene")
    discovery = page.locator("#hygiene-discovery")
    expect(discovery.locator("h2")).to_have_text(f"Discovery without state: {found['discovery_count']}")
    assert discovery.locator("tbody tr").count() == 20 < found["discovery_count"]
    expect(discovery).to_contain_text("may be well")
    expect(discovery.locator(".all")).to_have_count(0)  # not before the broker has listened for a day
    discovery.get_by_role("button", name="Show all").click()
    expect(discovery.locator("tbody tr")).to_have_count(found["discovery_count"])
    discovery.locator("tbody tr", has_text=f"{unique}-0/").get_by_role("button").click()
    page.click("dialog button.danger")
    expect(discovery.locator("tbody tr", has_text=f"{unique}-0/")).to_have_count(0)
    commands = page.locator("#hygiene-commands")
    commands.locator(".all").click()
    expect(page.locator("dialog")).to_contain_text(unique.topic("lamp/set"))
    page.click("dialog button.danger")
    expect(page.locator("#hygiene-commands h2")).to_have_text("Retained commands: 0")
    page.click(".toast >> nth=-1 >> text=Undo")
    expect(commands).to_contain_text("lamp/kitchen/set")
    page.locator("#hygiene-expiring tbody tr", has_text=unique.topic("soon")).get_by_role("button").click()
    page.click("dialog button.main")
    expect(page.locator("#hygiene-expiring")).not_to_contain_text(unique.topic("soon"))
    kept = api.ok("GET", "/api/v1/retained/message", params={"topic": unique.topic("soon")})
    assert (kept["text"], kept["expires_at"], kept["user_properties"]) == ("x", None, [["a", "b"]])
    subtree = page.locator("#hygiene-subtrees tbody tr", has_text="homeassistant/sensor")
    subtree.get_by_role("button").click()
    expect(page.locator("dialog")).to_contain_text(re.compile(r"\d\d retained messages"))
    page.click("dialog button:has-text('Cancel')")


def test_a_device_that_publishes_its_state_without_retaining_it_is_no_finding(
    anna: Visit, api: Api, house: BrokerProcess, unique: Unique
) -> None:
    api.set(f"homeassistant/sensor/{unique}/config", json.dumps({"state_topic": unique.topic("state")}))
    anna.open("hygiene?days=1")
    row = anna.page.locator("#hygiene-discovery tbody tr", has_text=unique.topic("state"))
    anna.page.get_by_role("button", name="Show all").first.click()
    expect(row).to_contain_text("never")
    with house.client(5) as client:
        client.connect(unique.client(), username="anna", password=b"pw1")
        client.publish(unique.topic("state"), b"21")
    api.set(unique.topic("changed"))
    anna.page.reload()
    expect(anna.page.locator("#hygiene-discovery tbody tr").first).to_be_visible()
    expect(row).to_have_count(0)


@pytest.fixture
def fleeting(
    browser: Browser, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[tuple[Visit, BrokerProcess, Callable[[], BrokerProcess]]]:
    """A page in front of a broker that can be stopped and started again at the same place."""
    broker = start_broker(listen=LISTEN, data=tmp_path / "data")
    port = broker.ports["http"]
    context = browser.new_context()
    context.set_default_timeout(60_000)
    visit = Visit(context.new_page(), f"http://127.0.0.1:{port}")
    listen = ("tcp://127.0.0.1:0", f"http://127.0.0.1:{port}")
    yield visit, broker, lambda: start_broker(listen=listen, data=tmp_path / "data")
    context.close()
    noise = ("net::ERR_", "WebSocket connection to")  # what Chromium itself writes of a server that is not there
    assert [one for one in visit.problems if not any(text in one for text in noise)] == []


@pytest.mark.parametrize("name", ["overview", "explorer", "clients"])
def test_a_broker_that_is_away_is_told_of_and_found_again(
    fleeting: tuple[Visit, BrokerProcess, Callable[[], BrokerProcess]], name: str
) -> None:
    visit, broker, start = fleeting
    page = visit.page
    visit.open(name)
    expect(page.locator("#status[data-state=on]")).to_be_visible()
    page.wait_for_timeout(500)
    broker.stop()
    banner = page.locator("#banner")
    expect(banner).to_contain_text("has not answered since")
    expect(banner).to_contain_text(re.compile(r"\(\d+ s\)"))
    expect(page.locator("#status")).to_have_text("No answer")
    expect(page.locator("body.away")).to_be_attached()
    if name == "overview":
        assert serious_findings(page) == []
        up = page.locator(".number", has_text="Up for").locator("b").text_content()
        page.wait_for_timeout(1500)
        assert page.locator(".number", has_text="Up for").locator("b").text_content() == up
        for other in (*PAGES, "overview"):
            visit.open(other)
            page.wait_for_timeout(300)
            assert "fetch" not in str(page.locator("body").text_content()), other
    else:
        page.wait_for_timeout(6000)  # whatever asks now and then has asked
        assert "fetch" not in str(page.locator("body").text_content())
    start()
    expect(banner).to_be_hidden()
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("body.away")).to_have_count(0)
    if name != "explorer":
        expect(page.locator(".number, p[role=status]").first).to_be_visible()


def test_an_empty_broker_says_how_to_send_the_first_message(
    browser: Browser, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(listen=LISTEN)
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{broker.ports['http']}/")
    expect(page.locator(".welcome pre")).to_contain_text(f"holdfast pub -p {broker.port} -t ")
    expect(page.locator(".number", has_text="Disk free")).to_be_visible()
    expect(page.locator(".number").last).to_contain_text("Up for")
    with Api(broker) as api:
        api.set("first")
        until(lambda: page.locator(".welcome").is_visible(), lambda shown: not shown)
    page.close()


def test_who_is_logged_out_by_a_restart_is_asked_again(
    browser: Browser, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"api__key_file": write_password_file(tmp_path / "keys", {"ops": "sesame"})}
    broker = start_broker(listen=LISTEN, data=tmp_path / "data", **settings)
    port = broker.ports["http"]
    page = browser.new_page()
    log_in(page, f"http://127.0.0.1:{port}", "ops", "sesame")
    expect(page.locator("#status[data-state=on]")).to_be_visible()
    broker.stop()
    expect(page.locator("#banner")).to_contain_text("has not answered")
    start_broker(listen=("tcp://127.0.0.1:0", f"http://127.0.0.1:{port}"), data=tmp_path / "data", **settings)
    expect(page.locator(".login")).to_be_visible(timeout=60_000)
    expect(page.locator("#banner")).to_be_hidden()
    page.close()
