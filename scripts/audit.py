"""What pip-audit found, as an exit code that can be believed. Run by `scripts/audit`."""

import json
import subprocess
import sys
from typing import Any

FOUND, UNKNOWN = 1, 3
PATIENCE_S = 300
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def main(arguments: list[str]) -> int:
    site = subprocess.run([".venv/bin/python", "-c", SITE], capture_output=True, text=True, check=True).stdout.strip()
    command = [".make/tools/bin/pip-audit", "--path", site, "--skip-editable", "--progress-spinner", "off"]
    command += ["--format", "json", "--timeout", "10", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return unknown(f"no answer within {PATIENCE_S} s")
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return unknown(lines[-1][:200] if lines else f"pip-audit ended with {done.returncode} and said nothing")
    return judge(dependencies)


def judge(dependencies: list[dict[str, Any]]) -> int:
    """Print what is known against each package, and what nothing is known of."""
    bad = [one for one in dependencies if one.get("vulns")]
    for one in bad:
        for hole in one["vulns"]:
            versions = ", ".join(hole.get("fix_versions", [])) or "nothing yet"
            print(f"{one['name']} {one['version']}: {hole['id']}, mended in {versions}")
    skipped = [one for one in dependencies if "skip_reason" in one and "editable" not in one["skip_reason"]]
    looked_up = [one for one in dependencies if "skip_reason" not in one]
    if bad:
        print(f"audit: {len(bad)} of {len(looked_up)} packages have known vulnerabilities", file=sys.stderr)
        return FOUND
    if skipped or not looked_up:
        return unknown(f"{len(skipped)} of {len(skipped) + len(looked_up)} packages were not found there")
    print(f"audit: nothing is known against any of {len(looked_up)} packages", file=sys.stderr)
    return 0


def unknown(why: str) -> int:
    print(
        f"audit: the data about known vulnerabilities cannot be reached from here, so nothing is proven: {why}",
        file=sys.stderr,
    )
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
