import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import build_app
from holdfast.config.load import KEYS
from holdfast.config.settings import SHARED_KEYS


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "300")


def check(*words: str) -> Result:
    return CliRunner().invoke(build_app("check-config"), ["check-config", *words])


def test_every_setting_is_shown_with_value_and_origin() -> None:
    result = check()
    assert result.exit_code == 0
    for key in KEYS:
        assert f" {key} " in result.output
    assert "no problems" in result.output


def test_json_holds_values_origins_and_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text("[retainer]\nmax_payload_size = '64KiB'\n[[access]]\npermission='deny'\naction='all'\nfilter='a'\n")
    monkeypatch.setenv("HOLDFAST_DURABILITY", "deliver")
    result = check("--json", "--config", str(path), "--set", "limits.max_qos=1")
    assert result.exit_code == 0
    document = json.loads(result.output)
    settings = document["settings"]
    assert set(settings) == set(KEYS)
    assert settings["retainer.max_payload_size"] == {"value": 65536, "origin": f"file {path}"}
    assert settings["durability"] == {"value": "deliver", "origin": "environment HOLDFAST_DURABILITY"}
    assert settings["limits.max_qos"] == {"value": 1, "origin": "--set"}
    assert settings["data"] == {"value": "data", "origin": "default"}
    assert settings["access"]["value"][0]["filter"] == ["a"]
    assert document["problems"] == []


def test_changed_leaves_the_defaults_out() -> None:
    result = check("--changed", "--json", "--set", "limits.max_qos=1")
    assert list(json.loads(result.output)["settings"]) == ["limits.max_qos"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_problem_is_told_and_the_exit_code_is_1(form: list[str]) -> None:
    result = check(*form, "--set", "limits.max_qso=1")
    assert result.exit_code == 1
    assert "limits.max_qso" in result.output
    assert "nearest known key: limits.max_qos" in result.output


def test_a_problem_between_settings_is_told_beside_the_settings() -> None:
    result = check("--json", "--listen", "tcp://0.0.0.0:1883")
    assert result.exit_code == 1
    document = json.loads(result.output)
    assert document["settings"]["listen"]["value"] == ["tcp://0.0.0.0:1883"]
    assert [problem["key"] for problem in document["problems"]] == ["listen"]


def test_markup_in_a_value_is_shown_as_it_is() -> None:
    result = check("--set", "response_information=[red]x[/red]")
    assert "[red]x[/red]" in result.output


def test_a_node_of_a_cluster_is_told_which_settings_are_the_clusters() -> None:
    alone = json.loads(check("--json").output)["settings"]
    assert all("of" not in one for one in alone.values())
    node = ("--set", "cluster.url=nats://127.0.0.1:4222", "--set", "cluster.node=a")
    settings = json.loads(check("--json", *node).output)["settings"]
    assert {key for key, one in settings.items() if one["of"] == "cluster"} == set(SHARED_KEYS)
    assert settings["limits.max_qos"]["of"] == "node"
    assert " of " in check(*node).output
