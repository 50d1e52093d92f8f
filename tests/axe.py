"""axe-core on a page: what keeps people with a keyboard, a screen reader or weak eyes out."""

from functools import cache
from importlib.resources import files

from playwright.sync_api import Page


@cache
def source() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def serious_findings(page: Page) -> list[str]:
    """Each serious or critical finding with the elements it is about. The script is put in past the page's content
    security policy, which lets nothing else run.
    """
    page.evaluate(source())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
