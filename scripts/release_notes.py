"""Prints what the changelog says about a release, for the tag that is its only argument.

Fails when tag, pyproject.toml and CHANGELOG.md do not speak of the same version, or when the changelog still calls it
not released.
"""

import re
import sys
import tomllib
from pathlib import Path


class Mismatch(Exception):
    pass


def notes(tag: str, version: str, changelog: str) -> str:
    """The part of the changelog about a tag. Raises Mismatch."""
    if tag != f"v{version}":
        raise Mismatch(f"the tag is {tag}, expected v{version} as in pyproject.toml")
    found = re.search(rf"^## {re.escape(version)}\b(.*?)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise Mismatch(f"CHANGELOG.md has no heading for {version}")
    if not re.fullmatch(r", \d{4}-\d{2}-\d{2}", found[1]):
        raise Mismatch(f"CHANGELOG.md says {version}{found[1]}, expected {version} and the day: {version}, YYYY-MM-DD")
    return found[2].strip() + "\n"


def main(tag: str) -> int:
    root = Path(__file__).parents[1]
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    try:
        print(notes(tag, version, (root / "CHANGELOG.md").read_text()), end="")
    except Mismatch as mismatch:
        print(f"release: {mismatch}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
