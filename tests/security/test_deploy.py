"""The files in deploy/: sound in form, and as narrow as they say."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from holdfast.config.checks import problems_of
from holdfast.config.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_sound_and_its_sandbox_tight(tmp_path: Path) -> None:
    unit = (DEPLOY / "holdfast.service").read_text()
    copy = tmp_path / "holdfast.service"
    copy.write_text(unit.replace("/opt/holdfast/bin/holdfast", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert "holdfast.service" not in done.stdout + done.stderr
    scored = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)], capture_output=True, text=True
    )
    found = re.search(r"exposure level for holdfast.service: ([0-9.]+)", scored.stdout)
    assert found is not None, scored.stdout + scored.stderr
    assert float(found[1]) < 2.5


def test_the_unit_is_given_its_secrets_and_needs_no_file_that_others_can_read() -> None:
    lines = (DEPLOY / "holdfast.service").read_text().splitlines()
    assert "DynamicUser=yes" in lines
    assert "LoadCredential=users:/etc/holdfast/users" in lines


def test_the_image_runs_as_a_user_of_its_own_and_holds_no_secret() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None
    assert int(user[1]) >= 10_000
    assert last.index("USER ") < last.index("ENTRYPOINT")
    assert not re.search(r"password|secret|token", text, re.IGNORECASE)


@pytest.mark.long
def test_the_linter_has_nothing_to_say_about_the_image() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(DEPLOY.parent / ".make/tools/bin"))
    if hadolint is None:
        pytest.skip("hadolint is not installed: scripts/tools brings it, where there is one for this machine")
    done = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    worse = (DEPLOY / "Dockerfile").read_text().replace("USER 10001:10001", "USER root")
    refused = subprocess.run([hadolint, "-"], input=worse, capture_output=True, text=True)
    assert refused.returncode != 0, "the linter does not look"


def test_the_image_asks_for_a_login_by_default() -> None:
    settings = Settings.model_validate(tomllib.loads((DEPLOY / "holdfast.docker.toml").read_text()))
    assert not any(listener.allow_anonymous for listener in settings.listeners())
    problems = [problem for problem in problems_of(settings, {}) if problem.key != "auth.password_file"]
    assert problems == []


def base_image(
    tmp_path: Path, base: str, dockerfile: str | None = None, *words: str
) -> subprocess.CompletedProcess[str]:
    """What `scripts/base-image` says of a tree with that base."""
    for name in ("scripts/base-image", "deploy/Dockerfile"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(DEPLOY.parent / name, tmp_path / name)
    (tmp_path / "deploy/base-image").write_text(f"# why\n{base}\n")
    if dockerfile is not None:
        (tmp_path / "deploy/Dockerfile").write_text(dockerfile)
    command = ["bash", str(tmp_path / "scripts/base-image"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


PINNED = f"python:3.11-slim-bookworm@sha256:{'0f' * 32}"


def test_the_image_is_built_on_a_base_of_known_digest_or_not_at_all(tmp_path: Path) -> None:
    assert base_image(tmp_path, PINNED).stdout.strip() == PINNED
    for loose in ("python:3.11-slim-bookworm", "python", f"{PINNED}0", "python:3.11@sha256:"):
        done = base_image(tmp_path, loose)
        assert done.returncode == 1, loose
        assert "expected NAME:TAG@sha256" in done.stderr
    assert "scripts/base-image" in (DEPLOY.parent / "Makefile").read_text()


def test_no_stage_of_the_image_stands_on_anything_else(tmp_path: Path) -> None:
    assert base_image(tmp_path, PINNED, "FROM ${BASE} AS build\nFROM debian:12\n").returncode == 1
    here = subprocess.run(["bash", str(DEPLOY.parent / "scripts/base-image"), "--form"], check=False)
    assert here.returncode == 0
