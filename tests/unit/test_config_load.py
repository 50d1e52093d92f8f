import re
from pathlib import Path

import pytest

from holdfast.config import ConfigError, Loaded, load
from holdfast.config.load import OTHER_VARIABLES


def loaded(tmp_path: Path, text: str = "", *assignments: str, **environ: str) -> Loaded:
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    return load(path, assignments=assignments, environ=environ)


def complaint(tmp_path: Path, text: str = "", *assignments: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text, *assignments, **environ)
    return str(raised.value)


def test_without_flags_environment_and_file_the_defaults_hold() -> None:
    result = load(environ={})
    assert result.settings.retainer.max_payload_size == 1024 * 1024
    assert result.settings.limits.receive_maximum == 1024
    assert result.settings.durability == "ack"
    assert set(result.origins.values()) == {"default"}


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    text = "[limits]\nmax_inflight = 1\nmax_queued_messages = 1\nreceive_maximum = 1\n"
    result = loaded(
        tmp_path,
        text,
        "limits.max_inflight=3",
        HOLDFAST_LIMITS__MAX_INFLIGHT="2",
        HOLDFAST_LIMITS__MAX_QUEUED_MESSAGES="2",
    )
    limits = result.settings.limits
    assert (limits.max_inflight, limits.max_queued_messages, limits.receive_maximum) == (3, 2, 1)
    assert limits.topic_alias_maximum == 64
    assert result.origins["limits.max_inflight"] == "--set"
    assert result.origins["limits.max_queued_messages"] == "environment HOLDFAST_LIMITS__MAX_QUEUED_MESSAGES"
    assert result.origins["limits.receive_maximum"] == f"file {tmp_path / 'holdfast.toml'}"
    assert result.origins["limits.topic_alias_maximum"] == "default"


def test_a_bad_value_that_is_replaced_does_no_harm(tmp_path: Path) -> None:
    assert loaded(tmp_path, "durability = 'sometimes'", "durability=none").settings.durability == "none"


def test_listen_and_data_have_flags_and_variables_of_their_own() -> None:
    environ = {"HOLDFAST_LISTEN": "tcp://127.0.0.1:2883, ws://127.0.0.1:2083", "HOLDFAST_DATA": "/tmp/a"}
    result = load(environ=environ)
    assert result.settings.listen == ["tcp://127.0.0.1:2883", "ws://127.0.0.1:2083"]
    assert result.settings.data == Path("/tmp/a")
    result = load(listen=["tcp://127.0.0.1:3883"], data="/tmp/b", environ=environ)
    assert result.settings.listen == ["tcp://127.0.0.1:3883"]
    assert result.settings.data == Path("/tmp/b")
    assert (result.origins["listen"], result.origins["data"]) == ("--listen", "--data")


def test_a_variable_can_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("durability = 'deliver'")
    assert load(environ={"HOLDFAST_CONFIG": str(path)}).settings.durability == "deliver"


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("retainer.storag_type", '"ram"', "retainer.storage_type"),
        ("limits.max_packetsize", "5", "limits.max_packet_size"),
        ("durabilty", '"none"', "durability"),
        ("max_qos", "1", "limits.max_qos"),
        ("retain.storage_type", '"ram"', "retainer"),
    ],
)
def test_an_unknown_key_in_the_file_names_key_value_place_and_nearest_key(
    tmp_path: Path, key: str, value: str, nearest: str
) -> None:
    text = complaint(tmp_path, f"{key} = {value}")
    assert key.split(".")[0] in text
    assert value.strip('"') in text
    assert str(tmp_path / "holdfast.toml") in text
    assert text.endswith(f"nearest known key: {nearest}")


def test_an_unknown_key_given_by_flag_is_an_error(tmp_path: Path) -> None:
    text = complaint(tmp_path, "", "retainer.max_payload=5")
    assert text == (
        'retainer.max_payload (--set): unknown key (value "5"); nearest known key: retainer.max_payload_size'
    )


def test_an_unknown_variable_is_an_error(tmp_path: Path) -> None:
    text = complaint(tmp_path, HOLDFAST_RETAINER__STORAGETYPE="ram")
    assert "HOLDFAST_RETAINER__STORAGETYPE" in text
    assert text.endswith("nearest known key: retainer.storage_type")


@pytest.mark.parametrize(
    "variable",
    [
        "HOLDFAST_PURE",
        "HOLDFAST_SERVICE_HOST",
        "HOLDFAST_SERVICE_PORT_MQTT",
        "HOLDFAST_PORT",
        "HOLDFAST_PORT_1883_TCP_ADDR",
    ],
)
def test_variables_that_are_not_settings_are_left_alone(variable: str) -> None:
    assert set(load(environ={variable: "tcp://10.0.0.1:1883"}).origins.values()) == {"default"}


def test_an_unknown_key_inside_a_table_names_the_nearest_key_of_that_table(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[[retainer.policy]]\nfilter = 'a/#'\nmax_mesages = 5\n")
    assert "retainer.policy[0].max_mesages" in text
    assert text.endswith("unknown key (value 5); nearest known key: max_messages")


def test_a_missing_key_inside_a_table_is_named(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[[access]]\npermission = 'allow'\naction = 'publish'\n")
    assert text.endswith("expected a value, got none")
    assert text.startswith("access[0].filter ")


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("limits.max_qos=3", 'limits.max_qos (--set): expected at most 2, got "3"'),
        ("limits.max_qos=two", 'limits.max_qos (--set): expected a whole number, got "two"'),
        ("limits.receive_maximum=0", 'limits.receive_maximum (--set): expected at least 1, got "0"'),
        ("retainer.enable=perhaps", 'retainer.enable (--set): expected true or false, got "perhaps"'),
        ("log.level=loud", "log.level (--set): expected 'debug', 'info', 'warning' or 'error', got \"loud\""),
        ("limits.keep_alive_max=1500ms", "limits.keep_alive_max (--set): expected whole seconds, got 1.5s"),
        ("limits.max_packet_size=1GiB", 'limits.max_packet_size (--set): expected at most 268435460, got "1GiB"'),
        ("history.filter=a/#/b", "history.filter[0] (--set): expected a topic filter"),
        ("websocket.path=mqtt", "websocket.path (--set): expected a path that starts with /, got 'mqtt'"),
        ("listen=tpc://127.0.0.1:0", "listen[0] (--set): expected one of tcp://"),
        ("listen=", "listen (--set): expected at least one value, got []"),
        ("access=[{", "access (--set): expected an array of tables in JSON or TOML, got '[{'"),
        ("limits.max_qos", "expected KEY=VALUE, got 'limits.max_qos' (--set)"),
    ],
)
def test_a_wrong_value_is_refused_with_key_expected_and_got(tmp_path: Path, assignment: str, expected: str) -> None:
    assert complaint(tmp_path, "", assignment).startswith(expected)


def test_a_boolean_is_not_a_number(tmp_path: Path) -> None:
    assert "expected a whole number, got true" in complaint(tmp_path, "[limits]\nmax_inflight = true\n")


def test_a_section_must_be_a_table(tmp_path: Path) -> None:
    assert "limits" in complaint(tmp_path, "limits = 5")
    assert "expected a table, got 5" in complaint(tmp_path, "limits = 5")


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    text = complaint(tmp_path, "colour = 'red'\n[limits]\nmax_qos = 9\n", "sys.interval=often")
    assert [line.split(" ")[0] for line in text.splitlines()] == ["colour", "limits.max_qos", "sys.interval"]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the configuration: no such file or directory \(file .*none.toml"
    ):
        load(tmp_path / "none.toml", environ={})


def test_a_file_that_is_not_toml_is_an_error(tmp_path: Path) -> None:
    assert complaint(tmp_path, "durability: ack").startswith("not a TOML file: ")


@pytest.mark.parametrize(
    "text",
    [
        '[{"permission": "deny", "action": "all", "filter": "a/#"}]',
        '[{permission = "deny", action = "all", filter = "a/#"}]',
    ],
)
def test_tables_can_be_given_as_json_or_toml_arrays(text: str) -> None:
    (rule,) = load(assignments=[f"access={text}"], environ={}).settings.access
    assert (rule.permission, rule.action, rule.filter, rule.user) == ("deny", ["all"], ["a/#"], None)


def test_policies_and_rules_are_read_in_order_with_units(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        """
        [retainer]
        max_payload_size = "512KB"
        expiry_interval = "15m"
        presets = ["commands"]
        [[retainer.policy]]
        filter = "cmnd/#"
        action = "drop-flag"
        [[retainer.policy]]
        filter = "sensors/#"
        ttl = "1d"
        max_bytes = "1MiB"
        users = "gateway"
        """,
    )
    retainer = result.settings.retainer
    assert (retainer.max_payload_size, retainer.expiry_interval, retainer.presets) == (512_000, 900, ["commands"])
    assert [policy.action for policy in retainer.policy] == ["drop-flag", "store"]
    second = retainer.policy[1]
    assert (second.ttl, second.max_bytes, second.max_messages, second.users) == (86_400, 1_048_576, 0, ["gateway"])
    assert retainer.policy[0].users is None


def test_an_empty_variable_takes_an_optional_value_away(tmp_path: Path) -> None:
    result = loaded(tmp_path, "[tls]\nca = 'missing.pem'\n", HOLDFAST_TLS__CA="")
    assert result.settings.tls.ca is None


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(environ={}).settings.limits.max_qos = 1


def test_reload_reads_the_file_again_and_keeps_flags(tmp_path: Path) -> None:
    first = loaded(tmp_path, "[log]\nlevel = 'info'\n", "limits.max_qos=1")
    (tmp_path / "holdfast.toml").write_text("[log]\nlevel = 'debug'\n[limits]\nmax_qos = 0\n")
    second = first.reload()
    assert (second.settings.log.level, second.settings.limits.max_qos) == ("debug", 1)
    assert first.settings.log.level == "info"
    (tmp_path / "holdfast.toml").write_text("[log]\nlevel = 'shrill'\n")
    with pytest.raises(ConfigError, match=r"log\.level"):
        second.reload()


def test_without_a_word_about_it_only_publishes_with_retain_are_recorded() -> None:
    result = load(environ={})
    assert result.settings.history.record == "retained"
    assert result.origins["history.record"] == "default"


@pytest.mark.parametrize(
    ("text", "assignments", "environ"),
    [
        ("[history]\nfilter = 'site/#'", (), {}),
        ("", ("history.filter=site/#",), {}),
        ("", (), {"HOLDFAST_HISTORY__FILTER": "site/#"}),
    ],
    ids=["file", "flag", "environment"],
)
def test_a_history_filter_alone_means_what_it_meant_before_record_was_there(
    tmp_path: Path, text: str, assignments: tuple[str, ...], environ: dict[str, str]
) -> None:
    result = loaded(tmp_path, text, *assignments, **environ)
    assert (result.settings.history.record, result.settings.history.filter) == ("all", ["site/#"])
    assert result.origins["history.record"] == "implied by history.filter"


def test_a_history_filter_narrows_what_record_says(tmp_path: Path) -> None:
    text = "[history]\nfilter = 'site/#'\nrecord = 'retained'"
    assert loaded(tmp_path, text).settings.history.record == "retained"
    assert loaded(tmp_path, text, "history.record=all").settings.history.record == "all"


def test_every_variable_that_a_flag_reads_is_known_and_stops_no_broker() -> None:
    sources = "".join(path.read_text() for path in (Path(__file__).parents[2] / "src").rglob("*.py"))
    named = set(re.findall(r'envvar="(HOLDFAST_\w+)"', sources))
    assert "HOLDFAST_SPARK_MASTER" in named
    assert named <= set(OTHER_VARIABLES)
    load(environ={"HOLDFAST_SPARK_MASTER": "local[1]"})


def test_listen_replaces_the_list() -> None:
    assert load(listen=["tcp://127.0.0.1:2883"], environ={}).settings.listen == ["tcp://127.0.0.1:2883"]


def test_listen_with_a_plus_adds_to_the_list_in_place_of_what_has_the_same_port(tmp_path: Path) -> None:
    found = load(listen=["+tcp://0.0.0.0:1883?allow_anonymous=true"], environ={}).settings.listen
    assert found == [
        "ws://127.0.0.1:8083",
        "udp://127.0.0.1:1884",
        "http://127.0.0.1:18083",
        "tcp://0.0.0.0:1883?allow_anonymous=true",
    ]
    path = tmp_path / "holdfast.toml"
    path.write_text('listen = ["tcp://127.0.0.1:0"]')
    assert load(path, ["+tcp://127.0.0.1:0"], environ={}).settings.listen == ["tcp://127.0.0.1:0"] * 2
    # UDP and TCP do not meet
    assert "udp://127.0.0.1:1884" in load(listen=["+tcp://127.0.0.1:1884"], environ={}).settings.listen


def test_adding_and_replacing_listeners_at_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="in front of every URL, or of none"):
        load(listen=["+tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], environ={})


@pytest.mark.parametrize(
    ("text", "assignments"),
    [
        ("[auth]\npassword = 'hush'", ()),
        ("[bridges]\npassword = 'hush'", ()),
        ("[[bridge]]\nname = 'b'\naddress = 'mqtt://h'\ntopic = '#'\npassword = 'hush'", ()),
        ("[[bridge]]\nname = 'b'\naddress = 'mqtt://u:hush@h'\ntopic = '#'", ()),
        ("", ("cluster.password=hush",)),
    ],
)
def test_a_password_in_the_wrong_place_is_not_repeated(tmp_path: Path, text: str, assignments: tuple[str, ...]) -> None:
    said = complaint(tmp_path, text, *assignments)
    assert "hush" not in said
    assert "(hidden)" in said
