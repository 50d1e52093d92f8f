"""A real browser, headless."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# How long an expectation waits: what is slow on a busy machine is not wrong.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Closed with the module: while it is open, Playwright keeps an event loop in this thread that others trip over."""
    from playwright.sync_api import expect, sync_playwright  # here, for most tests need no browser

    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()
