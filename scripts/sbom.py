"""Keeps of an environment what Holdfast needs to run: its dependencies and theirs, without the tools of a checkout.

Run by `scripts/sbom`: CycloneDX JSON in, CycloneDX JSON out, checked against the format's own schema.
"""

import json
import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_SHIPPED = ("dev",)


def needed(project: dict[str, Any], installed: dict[str, Distribution]) -> set[str]:
    """The names of everything that some user's installation pulls in, extras included."""
    extras = project.get("optional-dependencies", {})
    lines = [*project["dependencies"], *(line for name in extras if name not in NOT_SHIPPED for line in extras[name])]
    waiting = [Requirement(line) for line in lines]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, chosen = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, chosen) in seen or name not in installed or name == project["name"]:
            continue
        seen.add((name, chosen))
        for line in installed[name].requires or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *chosen)):
                waiting.append(requirement)
    return {name for name, _ in seen}


def main(site: str) -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    names = needed(project, {canonicalize_name(one.name): one for one in distributions(path=[site])})
    document = json.load(sys.stdin)
    root = document["metadata"]["component"]["bom-ref"]
    document["components"] = [one for one in document["components"] if canonicalize_name(one["name"]) in names]
    kept = {root, *(one["bom-ref"] for one in document["components"])}
    links = [one for one in document["dependencies"] if one["ref"] in kept]
    for one in links:
        if "dependsOn" in one:
            one["dependsOn"] = [ref for ref in one["dependsOn"] if ref in kept]
    document["dependencies"] = links
    text = json.dumps(document, indent=2, sort_keys=True)
    problem = JsonStrictValidator(SchemaVersion.from_version(document["specVersion"])).validate_str(text)
    if problem is not None:
        sys.exit(f"sbom: the result is not valid CycloneDX: {problem}")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1])
