"""What `scripts/setup` installs, and for whom: every program that it would run is one that writes down that it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# of the system, as far as the script uses it
TOOLS = [
    "bash",
    "basename",
    "cat",
    "cp",
    "cut",
    "dirname",
    "env",
    "find",
    "id",
    "mkdir",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "tail",
]
TOOLS += ["touch"]
PROGRAMS = ("mosquitto", "mosquitto_pub", "nats-server", "openssl", "chromium", "java")


class Machine:
    """A checkout on a machine that has the tools of any system, and nothing that a test installs."""

    def __init__(self, root: Path) -> None:
        self.checkout = root / "checkout"
        (self.checkout / "scripts/typescript").mkdir(parents=True)
        (self.checkout / "tests/integration/node").mkdir(parents=True)
        (self.checkout / "src").mkdir()
        for name in ("scripts/setup", "setup.py", "pyproject.toml"):
            shutil.copy(ROOT / name, self.checkout / name)
        shutil.copytree(ROOT / "requirements", self.checkout / "requirements")
        for folder in ("scripts/typescript", "tests/integration/node"):
            (self.checkout / folder / "package-lock.json").write_text("{}")
        self.bin = root / "bin"
        self.bin.mkdir()
        self.calls = root / "calls"
        self.output = root / "output"
        for name in TOOLS:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.add("id", "echo 0")
        self.add("apt-get")
        self.add("npm")
        python = self.checkout / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        # a Python that installs and compiles nothing
        self.add(
            python,
            f"""case "$*" in
                *"-m pip"* | *"setup.py"*) ;;
                *) exec {sys.executable} "$@" ;;
            esac""",
        )
        self.add(self.checkout / ".venv/bin/holdfast", "echo holdfast")

    def add(self, name: str | Path, does: str = "") -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!{shutil.which("sh")}\necho "{path.name} $*" >>{self.calls}\n{does}\n')
        path.chmod(0o755)

    def setup(self, *words: str, **variables: str) -> str:
        self.calls.write_text("")
        env = {"PATH": str(self.bin), "HOME": str(self.checkout), "HOLDFAST_PURE": "", "CC": "sh", **variables}
        with self.output.open("w") as output:
            done = subprocess.run(
                [str(self.checkout / "scripts/setup"), *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=300,
            )
        told = self.output.read_text()
        assert done.returncode == 0, told
        return told

    def called(self, *names: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] in names]

    def installed(self) -> list[str]:
        """The locks whose packages pip was asked for, by hash, and the extras that it chose by itself."""
        asked = r"--require-hashes .*-r requirements/(\w+)\.txt|--editable \.\[([\w,]+)\]"
        return [lock or extras for lock, extras in re.findall(asked, self.calls.read_text())]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_running_the_broker_installs_history_and_dashboard_and_nothing_of_the_system(machine: Machine) -> None:
    machine.setup("--if-needed", "--for", "run")
    assert machine.installed() == ["build", "image"]
    assert machine.called("apt-get", "npm") == []
    assert any("build_ext" in line for line in machine.called("python"))


def test_what_is_there_is_not_installed_again_and_a_greater_purpose_is_enough_for_a_smaller(machine: Machine) -> None:
    machine.setup("--if-needed", "--for", "run")
    assert machine.setup("--if-needed", "--for", "run") == ""
    assert machine.installed() == []
    machine.setup("--if-needed", "--for", "demo")
    assert machine.installed() == ["build", "demo"]
    machine.setup("--if-needed")
    assert machine.installed() == ["build", "dev"]
    for purpose in ("run", "demo"):
        assert machine.setup("--if-needed", "--for", purpose) == ""
        assert machine.installed() == []


def test_a_choice_of_parts_has_the_versions_of_the_lock(machine: Machine) -> None:
    machine.setup("--if-needed", EXTRAS="dev,history")
    assert machine.installed() == ["build", "dev,history"]
    [line] = [line for line in machine.called("python") if "--editable" in line]
    assert "-c .make/versions.txt" in line
    assert re.search(r"^uvloop==\S+$", (machine.checkout / ".make/versions.txt").read_text(), re.MULTILINE)


def test_the_demo_gets_java_and_no_other_broker(machine: Machine) -> None:
    told = machine.setup("--if-needed", "--for", "demo")
    assert [line.split()[-1] for line in machine.called("apt-get")] == ["default-jre-headless"]
    assert "default-jre-headless, for Spark" in told


def test_system_packages_are_named_with_their_reason_before_root_gets_them(machine: Machine) -> None:
    before = machine.checkout / "before"
    machine.add("apt-get", f"[ -e {before} ] || cp {machine.output} {before}")
    machine.setup("--if-needed")
    packages = [line.split()[-1] for line in machine.called("apt-get")]
    # the script also looks into /usr/sbin, where the brokers of this very machine may be
    there = {name for name in ("mosquitto", "nats-server") if Path("/usr/sbin", name).exists()}
    wanted = ["mosquitto-clients", "mosquitto", "nats-server", "openssl", "chromium", "default-jre-headless"]
    assert packages == [name for name in wanted if name not in there]
    for package in packages:
        assert re.search(rf"^setup:     {package}, for \w+", before.read_text(), re.MULTILINE), package
    assert all("-y" in line for line in machine.called("apt-get"))


def test_root_is_given_nothing_when_that_is_forbidden_and_what_is_left_out_is_said(machine: Machine) -> None:
    told = machine.setup("--if-needed", SETUP_SYSTEM="no")
    assert machine.called("apt-get") == []
    assert re.search(r"SETUP_SYSTEM=no: without mosquitto-clients these are left out: the tests", told)
    assert re.search(r"SETUP_SYSTEM=no: without default-jre-headless these are left out: Spark", told)


def test_nothing_is_installed_for_who_is_not_root_and_the_command_is_named(machine: Machine) -> None:
    machine.add("id", "echo 1000")
    told = machine.setup("--if-needed")
    assert machine.called("apt-get") == []
    assert "apt-get install chromium): these are left out: the tests of the dashboard" in told


def test_programs_that_are_there_are_left_alone(machine: Machine) -> None:
    for name in PROGRAMS:
        machine.add(name)
    machine.setup("--if-needed")
    assert machine.called("apt-get") == []


def test_an_unknown_purpose_is_refused(machine: Machine) -> None:
    env = {"PATH": os.environ["PATH"]}
    words = [str(machine.checkout / "scripts/setup"), "--for", "fun"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "expected --if-needed, --no-compile, --for run or --for demo, got --for fun" in done.stderr
