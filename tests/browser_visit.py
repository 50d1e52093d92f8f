"""A visit to the dashboard: a page, and what went wrong on it."""

from playwright.sync_api import Page


class Visit:
    """`problems` are console errors, uncaught errors and requests to other hosts."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.problems: list[str] = []
        page.on("console", lambda line: self.note(line.type, line.text))
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("request", lambda request: self.check(request.url))

    def note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"console {kind}: {text}")

    def check(self, url: str) -> None:
        if not url.startswith((self.base, self.base.replace("http", "ws", 1), "blob:", "data:")):
            self.problems.append(f"request to another host: {url}")

    def open(self, name: str) -> None:
        self.page.goto(f"{self.base}/#{name}")

    def row(self, path: str) -> str:
        return f'.row[data-path="{path}"]'
