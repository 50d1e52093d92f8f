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


def broken_titles(page: Page) -> list[str]:
    """Titles, states and buttons that stand on more lines than they have words."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('main th, main button, main .state, nav a')].filter((one) => {
            if (!one.offsetParent || one.classList.contains('link')) return false;
            const walk = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
            for (let text = walk.nextNode(); text; text = walk.nextNode()) {
                const range = document.createRange();
                range.selectNodeContents(text);
                const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
                if (lines > text.data.trim().split(/[ -]+/).length) return true;
            }
            return false;
        }).map((one) => one.textContent)"""
    )
    return found
