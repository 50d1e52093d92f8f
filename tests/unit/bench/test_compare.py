"""The comparison of `make bench`: its columns, its targets, its tables, and what it starts other brokers with."""

import os
from pathlib import Path

import pytest

import machine
from compare import ALL_SCENARIOS, SCENARIOS, chosen, described
from disk import bare_sync_ms, synced_answer_ms, written_bytes
from holdfast.config.settings import DEFAULT_LISTEN, Settings
from peers import (
    AS_SHIPPED,
    LISTENERS,
    MEMORY_ONLY,
    MEMORY_ONLY_SETTINGS,
    PEERS,
    FlashMQ,
    Holdfast,
    Mosquitto,
    flashmq_problem,
)
from scenario import BROKER, GENERATOR, Figure, Figures, Outcome, Scenario, rate
from tables import LINES, cell, markdown, table, target

SHIPPED, IN_MEMORY = Holdfast(), Holdfast(MEMORY_ONLY_SETTINGS, MEMORY_ONLY)
RECEIVED = rate("received_per_s", "received", times=12, of=MEMORY_ONLY)


def outcome(**values: float) -> Outcome:
    """What `received_per_s` was: of `shipped`, `memory` and `mosquitto`."""
    names = {"shipped": AS_SHIPPED, "memory": MEMORY_ONLY, "mosquitto": "mosquitto"}
    return Outcome({names[name]: [{"received_per_s": value}] for name, value in values.items()})


def test_as_shipped_comes_first_and_memory_only_beside_it() -> None:
    assert [peer.name for peer in PEERS][:3] == [AS_SHIPPED, MEMORY_ONLY, "mosquitto"]


def test_as_shipped_is_started_with_no_setting_and_all_default_listeners() -> None:
    assert SHIPPED.settings == ()
    assert [url.partition("://")[0] for url in DEFAULT_LISTEN] == list(LISTENERS)


def test_settings_of_a_column_are_the_ones_it_runs_with() -> None:
    defaults = Settings()
    assert f"durability={defaults.durability}" in SHIPPED.described()
    assert f"history.enable={str(defaults.history.enable).lower()}" in SHIPPED.described()
    for setting in MEMORY_ONLY_SETTINGS:
        assert setting in IN_MEMORY.described()


def test_heading_has_the_settings_of_every_column_the_cores_and_the_file_system() -> None:
    lines = described([SHIPPED, IN_MEMORY])
    assert lines[0].startswith("Holdfast, as shipped")
    assert lines[1].startswith("Holdfast, memory only")
    assert any(line.startswith("cores: ") for line in lines)
    assert any(line.startswith("data folders: on ") for line in lines)


@pytest.mark.parametrize("scenario", ALL_SCENARIOS, ids=lambda scenario: scenario.name)
def test_target_is_of_a_column_that_takes_part(scenario: Scenario) -> None:
    for figure in scenario.figures:
        if figure.target():
            assert figure.of in scenario.peers, figure.key
        if figure.times is not None:
            assert figure.beside in scenario.peers, figure.key


def test_scenarios_of_a_cluster_are_run_by_their_common_word_and_only_when_asked_for() -> None:
    assert chosen("") == list(SCENARIOS)
    assert chosen("cluster") == [scenario for scenario in ALL_SCENARIOS if scenario.name.startswith("cluster-")]
    assert [scenario.name for scenario in chosen("cluster-node,retained")] == ["cluster-node", "retained"]


def test_quick_is_of_the_same_scenarios_of_a_cluster() -> None:
    names = [scenario.name for scenario in chosen("cluster")]
    assert [scenario.name for scenario in chosen("", quick=True)] == names
    with pytest.raises(SystemExit, match="unknown scenario 'qos0'"):
        chosen("qos0", quick=True)


@pytest.mark.parametrize(
    ("name", "key", "times"),
    [("durable", "durable_1_per_s", 3), ("durable", "durable_10_per_s", 4), ("roundtrip", "set_and_receive_ms", 1)],
)
def test_what_is_shipped_has_targets_of_its_own(name: str, key: str, times: float) -> None:
    (figure,) = [
        figure for scenario in SCENARIOS if scenario.name == name for figure in scenario.figures if figure.key == key
    ]
    assert (figure.of, figure.times) == (AS_SHIPPED, times)


@pytest.mark.parametrize(("name", "key", "label"), LINES, ids=[f"{name}-{key}" for name, key, _ in LINES])
def test_line_of_the_readme_is_a_figure_of_a_scenario(name: str, key: str, label: str) -> None:
    (scenario,) = [scenario for scenario in ALL_SCENARIOS if scenario.name == name]
    assert key in [figure.key for figure in scenario.figures]


def test_target_looks_at_its_own_column_only() -> None:
    assert target(outcome(shipped=1, memory=120, mosquitto=10), RECEIVED[0]).endswith("[green]met[/green]")
    assert target(outcome(shipped=999, memory=119, mosquitto=10), RECEIVED[0]).endswith("[red]missed[/red]")
    assert target(outcome(shipped=999, mosquitto=10), RECEIVED[0]) == "12x mosquitto, memory only"


@pytest.mark.parametrize(
    ("figure", "ours", "expected"),
    [
        (Figure("k", "", at_most=1.8), 1.8, True),
        (Figure("k", "", at_most=1.8), 1.9, False),
        (Figure("k", "", at_least=5), 4.9, False),
        (Figure("k", "", more_is_better=False, times=1), 10.0, True),
        (Figure("k", "", more_is_better=False, times=1), 10.1, False),
        (Figure("k", ""), 1.0, None),
        (Figure("k", "", at_least=50, times=10), 100.0, True),
        (Figure("k", "", at_least=101, times=10), 100.0, False),
        (Figure("k", "", at_least=50, times=11), 100.0, False),
    ],
)
def test_verdict_follows_the_direction_of_the_figure(figure: Figure, ours: float, expected: bool | None) -> None:
    assert figure.verdict(ours, 10.0) is expected


def test_cell_has_the_ratio_to_mosquitto() -> None:
    found = outcome(shipped=1_000_000, memory=25, mosquitto=10)
    assert cell(found, AS_SHIPPED, RECEIVED[0]) == "1,000,000 (100000x)"
    assert cell(found, MEMORY_ONLY, RECEIVED[0]) == "25 (2.5x)"
    assert cell(found, "mosquitto", RECEIVED[0]) == "10"
    assert cell(found, "nats-server", RECEIVED[0]) == "-"


@pytest.mark.parametrize(("busy", "shown"), [(89.0, "50"), (97.0, ">= 50")])
def test_rate_of_a_generator_at_its_limit_is_a_lower_bound(busy: float, shown: str) -> None:
    figures: Figures = {"received_per_s": 50.0, GENERATOR: busy, BROKER: 60.0}
    assert cell(Outcome({AS_SHIPPED: [figures]}), AS_SHIPPED, RECEIVED[0]) == shown


def test_busy_shares_are_not_compared() -> None:
    found = Outcome({AS_SHIPPED: [{BROKER: 100.0}], "mosquitto": [{BROKER: 50.0}]})
    assert cell(found, AS_SHIPPED, RECEIVED[2]) == "100"


def test_table_has_a_column_for_each_broker_that_takes_part() -> None:
    scenario = Scenario("qos0", "title", lambda running: {}, RECEIVED, peers=(AS_SHIPPED, MEMORY_ONLY, "mosquitto"))
    shown = table(scenario, outcome(shipped=1, memory=2, mosquitto=3), [AS_SHIPPED, MEMORY_ONLY, "FlashMQ"])
    assert [str(column.header) for column in shown.columns] == [
        "",
        "Holdfast,\nas shipped",
        "Holdfast,\nmemory only",
        "target",
    ]


def test_markdown_has_the_measured_lines_and_the_settings_in_its_heading() -> None:
    scenario = Scenario("qos0", "title", lambda running: {}, RECEIVED)
    page = markdown({"qos0": outcome(shipped=20, memory=60)}, [scenario], [SHIPPED, IN_MEMORY], ["cores: 1"])
    lines = page.splitlines()
    assert lines[1] == (
        "| | Holdfast, as shipped<br>durability=ack<br>retainer.storage_type=disc<br>history.enable=true "
        "| Holdfast, memory only<br>durability=none<br>retainer.storage_type=ram<br>history.enable=false |"
    )
    assert lines[3] == "| QoS 0, one to one, messages/s | 20 | 60 |"
    assert [line for line in lines if line.startswith("| ")] == [lines[1], lines[3]]
    assert "- cores: 1" in lines


def test_flashmq_gets_one_thread_a_loopback_port_and_no_storage() -> None:
    lines = FlashMQ("flashmq").settings(4321, Path("folder"), quick_answers=False).splitlines()
    assert {"allow_anonymous true", "thread_count 1"} <= set(lines)
    assert lines[lines.index("listen {") :] == [
        "listen {",
        "    protocol mqtt",
        "    inet_protocol ip4",
        "    inet4_bind_address 127.0.0.1",
        "    port 4321",
        "}",
    ]
    assert not any(line.startswith(("storage_dir", "plugin")) for line in lines)


def test_quick_answers_are_asked_of_both_that_hold_small_packets_back() -> None:
    assert "set_tcp_nodelay true" in Mosquitto().settings(1, Path(), quick_answers=True)
    assert "tcp_nodelay true" in FlashMQ("flashmq").settings(1, Path(), quick_answers=True)


def test_flashmq_without_a_name_is_left_out_and_says_how_to_name_it() -> None:
    assert flashmq_problem("") == ""
    assert "FLASHMQ=path" in FlashMQ("").missing()


def test_named_flashmq_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    binary = tmp_path / "flashmq"
    assert f"FLASHMQ is '{binary}', which does not exist" in flashmq_problem(str(binary))
    binary.write_text("")
    binary.chmod(0o644)
    assert "is not an executable file" in flashmq_problem(str(binary))
    assert "is not an executable file" in flashmq_problem(str(tmp_path))
    binary.chmod(0o755)
    assert flashmq_problem(str(binary)) == ""


def test_written_bytes_are_those_of_files(tmp_path: Path) -> None:
    before = written_bytes(os.getpid())
    (tmp_path / "file").write_bytes(bytes(5000))
    assert written_bytes(os.getpid()) - before >= 5000


def test_bare_sync_leaves_nothing_behind(tmp_path: Path) -> None:
    assert bare_sync_ms(tmp_path, 148) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_only_syncs_leaves_nothing_behind(tmp_path: Path) -> None:
    assert synced_answer_ms(tmp_path, 148, os.sched_getaffinity(0)) > 0
    assert list(tmp_path.iterdir()) == []


def test_file_system_is_that_of_the_innermost_mount() -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
