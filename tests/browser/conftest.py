"""A browser in front of a broker that holds 100 000 topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from broker_process import MOSQUITTO, BrokerProcess, start_holdfast, under_test
from browser_visit import Visit
from chromium import PATIENCE_MS
from http_api import LISTEN, Api

MANY = 100_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if under_test() == MOSQUITTO:
        pytest.skip("about Holdfast's dashboard")
    running = start_holdfast(tmp_path_factory.mktemp("site"), listen=LISTEN)
    with Api(running) as api:
        fill(api)
    yield running
    assert "Traceback" not in running.output, running.output
    running.stop()


def fill(api: Api) -> None:
    api.set_many([f"fleet/line{n // 1000:02}/unit{n % 1000:03}/state" for n in range(MANY)], "running")
    for place in ("north", "south", "harbour"):
        for room in range(1, 7):
            api.set(f"site/{place}/room{room}/temperature", f"{18 + room / 2}")
            api.set(f"site/{place}/room{room}/humidity", f"{40 + room}")
    for level in (10, 35, 60, 80, 55):
        body = json.dumps({"on": level > 20, "level": level, "color": {"r": 255, "g": 180, "b": level}})
        api.set(
            "lamp/kitchen/state", body, content_type="application/json", user_properties=[["source", "hall switch"]]
        )
    api.set("lamp/kitchen/set", "ON")
    api.set("homeassistant/sensor/attic/config", '{"name": "Attic", "state_topic": "attic/state"}')
    api.set("site/harbour/gate", "open", expiry_s=1800)
    api.history("lamp/kitchen/state", 5)


@pytest.fixture
def visit(browser: Browser, site: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Opened with the context options of `@pytest.mark.parametrize("visit", [...], indirect=True)`, if any."""
    options = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    opened = Visit(context.new_page(), f"http://127.0.0.1:{site.ports['http']}")
    yield opened
    context.close()
    assert opened.problems == []


@pytest.fixture(scope="module")
def images() -> Path:
    folder = Path(__file__).parents[2] / "docs" / "images"
    folder.mkdir(exist_ok=True)
    return folder
