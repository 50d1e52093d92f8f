"""Films the dashboard for page one of the README: a delete by mistake, its undo, and a look at the past.

Starts a broker with a small home on it, works the real dashboard in Chromium by what a reader of the screen would look
for (roles and labels), and writes the pictures as one animated file. `make animation` runs it. It needs Chromium,
Playwright and Pillow, which `make setup` brings.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/images/undo.webp"
WIDTH, HEIGHT, CAPTION = 1120, 640, 56
BACKGROUND, FOREGROUND = "#0f766e", "#ffffff"
PATIENCE_S = 120
PATIENCE_MS = PATIENCE_S * 1000
BETWEEN_VALUES_S = 1.5

KITCHEN = "home/kitchen/climate"
TEMPERATURES = (17.5, 18.2, 19.1, 20.4, 21.5)
ROOMS = ("attic", "bathroom", "bedroom", "cellar", "hall", "kitchen", "porch", "study")

# A slider is moved by what a hand would cause.
MOVE = """(slider, part) => {
  const [low, high] = [Number(slider.min), Number(slider.max)];
  slider.value = String(low + (high - low) * part);
  for (const kind of ["input", "change"]) slider.dispatchEvent(new Event(kind, { bubbles: true }));
}"""


class Broker:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    def url(self) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"listening (http://127\.0\.0\.1:\d+)", self.log.read_text()):
                return found[1]
            time.sleep(0.1)
        raise SystemExit(f"animation: expected a broker that listens, got:\n{self.log.read_text()}")


@contextmanager
def running_broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--data", f"{folder}/data"]
        command += ["--listen", "http://127.0.0.1:0", "--set", "history.flush_interval=100ms"]
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stderr=stream, cwd=folder)
        try:
            yield Broker(process, log).url()
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def publish(url: str, topic: str, payload: str) -> None:
    body = {"topic": topic, "payload": payload, "retain": True, "qos": 1}
    request = urllib.request.Request(
        f"{url}/api/v1/publish", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer.read()


def furnish(url: str) -> list[float]:
    """A home whose values change for some seconds; returns a moment at which each of them held, in seconds."""
    for number, room in enumerate(ROOMS):
        publish(url, f"home/{room}/light", "on" if number % 3 else "off")
        if room != "kitchen":
            publish(url, f"home/{room}/climate", json.dumps({"temperature": 18 + number / 2, "humidity": 40 + number}))
    moments = []
    for value in TEMPERATURES:
        publish(url, KITCHEN, json.dumps({"temperature": value, "humidity": 47, "window": value < 19}))
        publish(url, "home/kitchen/light", "on" if value > 20 else "off")
        moments.append(time.time() + BETWEEN_VALUES_S / 2)
        time.sleep(BETWEEN_VALUES_S)
    publish(url, "plant/line1/speed", "118")
    publish(url, "plant/line2/speed", "97")
    return moments


def history_begins(url: str) -> float:
    with urllib.request.urlopen(f"{url}/api/v1/history/span", timeout=PATIENCE_S) as answer:
        return float(json.load(answer)["from_ms"]) / 1000


class Film:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.pictures: list[Image.Image] = []
        self.durations: list[int] = []

    def show(self, caption: str, milliseconds: int) -> None:
        self.page.wait_for_timeout(300)  # what moves on the page comes to rest
        picture = Image.new("RGB", (WIDTH, HEIGHT + CAPTION), BACKGROUND)
        picture.paste(Image.open(io.BytesIO(self.page.screenshot())))
        middle = (WIDTH / 2, HEIGHT + CAPTION / 2)
        ImageDraw.Draw(picture).text(middle, caption, FOREGROUND, ImageFont.load_default(24), "mm")
        self.pictures.append(picture)
        self.durations.append(milliseconds)

    def save(self, target: Path) -> None:
        first, *rest = self.pictures
        first.save(target, save_all=True, append_images=rest, duration=self.durations, loop=0, quality=75, method=6)


def row(page: Page, path: str) -> Locator:
    return page.locator(f'[role="treeitem"][data-path="{path}"]')


def open_row(page: Page, path: str) -> None:
    line = row(page, path)
    expect(line).to_be_visible()
    if line.get_attribute("aria-expanded") == "false":
        line.get_by_role("button", name="Open", exact=True).click()


def move(page: Page, part: float) -> None:
    page.get_by_role("slider").first.evaluate(MOVE, part)
    expect(page.get_by_role("button", name="Back to now")).to_be_visible()
    page.wait_for_load_state("networkidle")


def act(film: Film, url: str, moments: list[float]) -> None:
    page = film.page
    page.goto(f"{url}/#explorer")
    open_row(page, "home")
    open_row(page, "home/kitchen")
    row(page, KITCHEN).click()
    message = page.get_by_role("region", name="Message")
    expect(message.get_by_role("heading", name=KITCHEN)).to_be_visible()
    expect(message).to_contain_text("21.5")
    film.show("Every retained message, as it is now", 2500)

    row(page, "home").locator(".count").click()
    page.get_by_role("button", name="Delete all of it…").click()
    dialog = page.get_by_role("dialog", name="Delete")
    confirm = dialog.get_by_role("button", name=re.compile(r"^Delete \d+"))
    expect(confirm).to_be_visible()
    film.show("A mistake: somebody deletes everything under home/", 2500)
    confirm.click()
    expect(row(page, KITCHEN)).to_have_count(0)
    undo = page.get_by_role("button", name="Undo", exact=True)
    expect(undo).to_be_visible()
    film.show("Gone, also for every subscriber", 2500)
    undo.click()
    expect(row(page, "home")).to_be_visible()
    film.show("Undo: all of it is back", 2500)

    for close in page.get_by_role("button", name="Close", exact=True).all():
        if close.get_attribute("tabindex") is None:  # that of the notice, not those of the tree
            close.click()
    open_row(page, "home")
    open_row(page, "home/kitchen")
    row(page, KITCHEN).click()
    expect(message).to_contain_text("21.5")
    begin = history_begins(url)
    for moment in reversed(moments[:-1]):
        move(page, (moment - begin) / (time.time() - begin))
        film.show("Time travel: all of it as it was at any moment", 1500)
    page.get_by_role("button", name="Back to now").click()
    expect(message).to_contain_text("21.5")
    film.show("And back to now", 1500)


def main() -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("animation: expected Chromium, found none (Debian: apt-get install chromium)")
    with running_broker() as url, sync_playwright() as playwright:
        moments = furnish(url)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        film = Film(page)
        act(film, url, moments)
        browser.close()
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    film.save(target)
    print(f"wrote {target.name}: {len(film.pictures)} pictures, {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
