"""`holdfast serve` that does not come as far as serving: what is wrong with the configuration, told in a line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.main import main

Serve = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Serve:
    """What a start with these words says on stderr, and that it ends with 1."""

    def start(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["serve", "--data", str(tmp_path / "data"), *words])
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (1, "")
        return err

    return start


def test_a_problem_in_the_configuration_is_one_line_and_exit_code_1(refused: Serve) -> None:
    assert refused("--set", "limits.max_qso=1") == (
        'holdfast: limits.max_qso (--set): unknown key (value "1"); nearest known key: limits.max_qos\n'
    )


def test_every_problem_has_a_line_of_its_own(refused: Serve) -> None:
    lines = refused("--set", "limits.max_qos=7", "--set", "log.level=loud").splitlines()
    assert len(lines) == 2
    assert all(line.startswith("holdfast: ") for line in lines)


def test_a_listener_open_to_strangers_keeps_the_broker_from_starting(refused: Serve, tmp_path: Path) -> None:
    assert "asks nobody to log in" in refused("--listen", "tcp://0.0.0.0:0")
    assert not (tmp_path / "data").exists()
