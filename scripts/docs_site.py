"""Makes a site of the documentation, in build/site: pages with a menu, and a search that works without a server.

    .venv/bin/python scripts/docs_site.py            write it (`make site`)
    .venv/bin/python scripts/docs_site.py --check    only follow every link and anchor (`make check`)

Markdown is rendered by markdown-it-py, which the command line needs anyway; everything else is here. Nothing is loaded
from another host. A link to a file of the checkout that is no page stays as its text.
"""

import html
import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site"
LOOKS = Path(__file__).parent / "docs_site"
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
GROUPS = (("Guides", "docs/guides/"), ("Concepts", "docs/concepts/"), ("Reference", "docs/reference/"))
FIRST = ("getting-started", "docker", "recipes", "dashboard")  # what a newcomer reads first, in this order


@dataclass
class Page:
    """One Markdown file. `sections` are headings by their anchor, with the text below each."""

    source: str
    title: str = ""
    body: str = ""
    sections: dict[str, tuple[str, str]] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)

    @property
    def target(self) -> str:
        name = self.source.removeprefix("docs/").removesuffix(".md")
        return "index.html" if name == "README" else "documentation.html" if name == "index" else f"{name}.html"


def anchor_of(heading: str, taken: dict[str, tuple[str, str]]) -> str:
    """As GitHub makes it, so that one link serves both."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    anchor, number = plain, 0
    while anchor in taken:
        number += 1
        anchor = f"{plain}-{number}"
    return anchor


def sources() -> list[str]:
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*TOP, *docs]


def read(source: str, markdown: MarkdownIt) -> tuple[Page, list[Token]]:
    """A page with its headings and links, not rendered yet."""
    page = Page(source)
    tokens = markdown.parse((ROOT / source).read_text())
    anchor = ""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = plain_text(tokens[place + 1])
            anchor = anchor_of(heading, page.sections)
            token.attrSet("id", anchor)
            page.sections[anchor] = (heading, "")
            page.title = page.title or heading
        elif token.type in ("inline", "fence") and anchor and tokens[place - 1].type != "heading_open":
            heading, text = page.sections[anchor]
            page.sections[anchor] = (heading, f"{text} {plain_text(token)}".strip())
        page.links += [str(child.attrs["href"]) for child in token.children or [] if child.type == "link_open"]
        page.links += [str(child.attrs["src"]) for child in token.children or [] if child.type == "image"]
    return page, tokens


def plain_text(token: Token) -> str:
    if not token.children:
        return token.content
    return "".join(" " if child.type in ("softbreak", "hardbreak") else child.content for child in token.children)


def problems(pages: dict[str, Page]) -> list[str]:
    """Links that lead nowhere."""
    found = []
    for page in pages.values():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = resolved(page.source, path) if path else page.source
            if not (ROOT / target).exists():
                found.append(f"{page.source}: {link} leads to nothing")
            elif anchor and target in pages and unquote(anchor) not in pages[target].sections:
                found.append(f"{page.source}: {link} names a heading that {target} does not have")
    return found


def resolved(source: str, path: str) -> str:
    return normpath(f"{Path(source).parent.as_posix()}/{unquote(path)}")


def rewrite(page: Page, tokens: list[Token], pages: dict[str, Page]) -> None:
    """Turns links between Markdown files into links between pages; those to other files of the checkout go."""
    up = "../" * page.target.count("/")
    for token in tokens:
        open_links: list[bool] = []
        for child in list(token.children or []):
            if child.type == "image":
                child.attrSet("src", up + resolved(page.source, str(child.attrs["src"])).removeprefix("docs/"))
            elif child.type == "link_open":
                link = str(child.attrs["href"])
                path, mark, anchor = link.partition("#")
                target = resolved(page.source, path) if path else page.source
                outside = re.match(r"[a-z]+:", link) is not None
                keeps = outside or target in pages
                open_links.append(keeps)
                if keeps and not outside:
                    child.attrSet("href", up + pages[target].target + mark + anchor)
                child.hidden = not keeps
            elif child.type == "link_close":
                child.hidden = not open_links.pop()


def menu(current: Page, pages: dict[str, Page]) -> str:
    up = "../" * current.target.count("/")

    def entry(page: Page) -> str:
        here = ' aria-current="page"' if page is current else ""
        return f'<li><a href="{up}{page.target}"{here}>{html.escape(page.title)}</a></li>'

    def place(source: str) -> tuple[int, str]:
        name = Path(source).stem
        return (FIRST.index(name) if name in FIRST else len(FIRST), source)

    parts = [f"<ul>{entry(pages['README.md'])}{entry(pages['docs/index.md'])}</ul>"]
    for title, folder in GROUPS:
        members = sorted((source for source in pages if source.startswith(folder)), key=place)
        parts.append(f"<h2>{title}</h2><ul>{''.join(entry(pages[one]) for one in members)}</ul>")
    rest = [one for one in pages if one.startswith("docs/") and one.count("/") == 1 and one != "docs/index.md"]
    others = [*TOP[1:], *rest]
    return "".join([*parts, f"<h2>Project</h2><ul>{''.join(entry(pages[one]) for one in others)}</ul>"])


def write(pages: dict[str, Page], out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copytree(ROOT / "docs/images", out / "images")
    for name in ("site.css", "search.js"):
        shutil.copy(LOOKS / name, out / name)
    shutil.copy(ROOT / "src/holdfast/ui/static/icon.svg", out / "icon.svg")
    template = (LOOKS / "page.html").read_text()
    index = []
    for page in pages.values():
        filled = {
            "TITLE": html.escape(page.title),
            "UP": "../" * page.target.count("/"),
            "MENU": menu(page, pages),
            "BODY": page.body,
        }
        target = out / page.target
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(template, filled))
        for anchor, (heading, text) in page.sections.items():
            index.append([page.target, anchor, page.title, heading, text])
    # a script, because a page that was opened from the disk may not fetch anything
    (out / "search-index.js").write_text(f"const SECTIONS = {json.dumps(index, ensure_ascii=False)};\n")


def fill(template: str, values: dict[str, str]) -> str:
    """In one pass: what is filled in is not looked at again."""
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], template)


def load() -> dict[str, Page]:
    """Every page, rendered. Links are those of the checkout until `rewrite`."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parsed = {source: read(source, markdown) for source in sources()}
    pages = {source: page for source, (page, _) in parsed.items()}
    for page, tokens in parsed.values():
        rewrite(page, tokens, pages)
        page.body = markdown.renderer.render(tokens, markdown.options, {})
    return pages


def main(words: list[str]) -> int:
    pages = load()
    wrong = problems(pages)
    for line in wrong:
        print(f"site: {line}", file=sys.stderr)
    if wrong:
        return 1
    links = sum(len(page.links) for page in pages.values())
    if words == ["--check"]:
        print(f"site: {len(pages)} pages, {links} links, all lead somewhere")
        return 0
    write(pages, OUT)
    print(f"site: open {OUT / 'index.html'}: {len(pages)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
