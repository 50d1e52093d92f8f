"""The session that README shows, typed: each line answers what is printed below it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from command_line import holdfast
from http_api import LISTEN

README = (Path(__file__).parents[2] / "README.md").read_text()
NAME = r"api-[0-9a-f]{12}"


def session() -> list[tuple[str, str]]:
    """The lines behind a $ and what is printed after each."""
    [shown] = [block for block in re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL) if block[0] == "$"]
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", shown, re.MULTILINE)


def test_the_first_session_of_the_readme_goes_as_it_is_shown(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(listen=LISTEN, data=tmp_path / "data")
    monkeypatch.setenv("HOLDFAST_URL", f"http://127.0.0.1:{broker.ports['http']}")
    lines = session()
    assert len(lines) >= 5
    name = ""
    for line, expected in lines:
        words = shlex.split(re.sub(NAME, name, line) if name else line, comments=True)[1:]
        if words[0] in ("pub", "sub"):
            words += ["-p", str(broker.port)]
        done = holdfast(*words)
        assert done.returncode == 0, done.stderr
        assert re.sub(NAME, "NAME", done.stdout) == re.sub(NAME, "NAME", expected), line
        found = re.search(NAME, done.stdout)
        name = found[0] if found else name


def test_the_readme_says_what_it_is_and_how_to_run_it_before_anything_else() -> None:
    headings = re.findall(r"^## (.*)$", README, re.MULTILINE)
    order = ["Run it", "Compared with others", "How it is built", "Figures", "Status"]
    assert [one for one in headings if one in order] == order
    assert "\n## " not in README[: README.index("## Run it") - 1]
    assert README.index("pip install") < README.index("docker run") < README.index("make run")
