"""Makes the list of what the image installs into a list of the image: for its platform, with the base it stands on.

Run by `scripts/sbom --image`: CycloneDX JSON in, CycloneDX JSON out, checked against the format's own schema. The
Debian packages of the base are not in it: they are in the base's own list, which its digest finds.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# What the Dockerfile's base is. Markers of the lock are asked about this, not about the machine that makes the list.
PLATFORM = {
    "python_version": "3.11",
    "python_full_version": "3.11.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
BASE = re.compile(r"(?P<name>[^:@]+):(?P<tag>[^@]+)(?:@sha256:(?P<digest>[0-9a-f]{64}))?")


def installed(lock: str) -> set[tuple[str, str]]:
    """(name, version) of everything in a lock that is for the image."""
    found: set[tuple[str, str]] = set()
    for line in lock.splitlines():
        if "==" in line and not line.startswith(("#", " ")):
            wanted = Requirement(line.rstrip("\\ "))
            if wanted.marker is None or wanted.marker.evaluate(PLATFORM):
                found.add((canonicalize_name(wanted.name), next(iter(wanted.specifier)).version))
    return found


def base_component(base: str) -> dict[str, Any]:
    match = BASE.fullmatch(base)
    if match is None:
        sys.exit(f"sbom: expected a base such as python:3.11@sha256:..., got {base!r}")
    name, tag, digest = match["name"], match["tag"], match["digest"]
    component = {"bom-ref": "base-image", "type": "container", "name": name, "version": tag}
    if digest is None:
        return {**component, "purl": f"pkg:docker/{name}@{tag}"}
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {**component, "purl": f"pkg:docker/{name}@sha256%3A{digest}?tag={tag}", "hashes": hashes}


def of_image(document: dict[str, Any], lock: str, base: str) -> dict[str, Any]:
    wanted = installed(lock)
    parts = [one for one in document["components"] if (canonicalize_name(one["name"]), one["version"]) in wanted]
    for one in parts:
        del one["description"]  # the line of the lock, which its own fields say better
    root = document["metadata"]["component"]
    root["type"] = "container"
    refs = [*(one["bom-ref"] for one in parts), "base-image"]
    links = [{"ref": root["bom-ref"], "dependsOn": refs}, *({"ref": ref} for ref in refs)]
    return {**document, "components": [*parts, base_component(base)], "dependencies": links}


def main(base: str) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    document = of_image(json.load(sys.stdin), Path("requirements/image.txt").read_text(), base)
    text = json.dumps(document, indent=2, sort_keys=True)
    problem = JsonStrictValidator(SchemaVersion.from_version(document["specVersion"])).validate_str(text)
    if problem is not None:
        sys.exit(f"sbom: the result is not valid CycloneDX: {problem}")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1])
