"""`holdfast serve` that does not come as far as serving: what is wrong with the configuration, told in a line."""

from pathlib import Path

from command_line import holdfast


def refused(folder: Path, *words: str) -> str:
    """What a start with these words says on stderr, and that it ends with 1."""
    done = holdfast("serve", "--data", str(folder / "data"), *words)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_a_problem_in_the_configuration_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    assert refused(tmp_path, "--set", "limits.max_qso=1") == (
        'holdfast: limits.max_qso (--set): unknown key (value "1"); nearest known key: limits.max_qos\n'
    )


def test_every_problem_has_a_line_of_its_own(tmp_path: Path) -> None:
    lines = refused(tmp_path, "--set", "limits.max_qos=7", "--set", "log.level=loud").splitlines()
    assert len(lines) == 2
    assert all(line.startswith("holdfast: ") for line in lines)


def test_a_listener_open_to_strangers_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    assert "requires no login" in refused(tmp_path, "--listen", "tcp://0.0.0.0:0")
    assert not (tmp_path / "data").exists()
