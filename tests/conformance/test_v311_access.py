"""3.1.1: what a broker with users, access rules and limits answers."""

from collections.abc import Callable, Iterator

import pytest

import wire
from broker_process import MOSQUITTO, BrokerProcess, Unique, start_holdfast, under_test
from password_file import write_password_file
from wire import PubAck, Publish, WireClient

Enter = Callable[..., WireClient]

RULES = """
[auth]
no_match = "allow"

[[access]]
permission = "deny"
action = ["publish", "subscribe"]
filter = "secret/#"
user = "guest"
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Users owner and guest; guest is kept out of secret/#; client ids up to 23 bytes; QoS up to 1."""
    if under_test() == MOSQUITTO:
        pytest.skip("needs a broker with Holdfast's settings")
    folder = tmp_path_factory.mktemp("guarded")
    users = write_password_file(folder / "users", {"owner": "o", "guest": "g"})
    config = folder / "holdfast.toml"
    config.write_text(RULES)
    settings = {"auth.password_file": users, "limits.max_client_id_length": 23, "limits.max_qos": 1}
    running = start_holdfast(folder / "data", settings, args=["--config", str(config)])
    yield running
    running.stop()


@pytest.fixture
def enter(guarded: BrokerProcess, unique: Unique) -> Iterator[Enter]:
    opened: list[WireClient] = []

    def start(user: str = "owner") -> WireClient:
        client = guarded.client()
        opened.append(client)
        client.connect(unique.client(str(len(opened))), username=user, password=user[0].encode())
        return client

    yield start
    for client in opened:
        client.cut()


@pytest.mark.clause("3.1.1", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"username": "owner", "password": b"wrong"}, 4, id="wrong password"),
        pytest.param({"username": "nobody", "password": b"o"}, 4, id="unknown user"),
        pytest.param({"username": "owner"}, 4, id="no password"),
        pytest.param({}, 5, id="no user name"),
    ],
)
def test_refused_login_gets_its_return_code_and_close(
    fields: dict[str, object], code: int, guarded: BrokerProcess, unique: Unique
) -> None:
    with guarded.client() as client:
        client.send(wire.connect(unique.client(), **fields))  # type: ignore[arg-type]
        client.expect(bytes([0x20, 2, 0, code]))
        client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-5")
def test_nothing_behind_a_refused_login_is_processed(guarded: BrokerProcess, enter: Enter, unique: Unique) -> None:
    watcher = enter()
    watcher.subscribe(unique.topic())
    with guarded.client() as client:
        client.send(
            wire.connect(unique.client("bad"), username="owner", password=b"wrong")
            + wire.publish(unique.topic(), b"refused")
            + wire.subscribe(1, [(unique.topic(), 0)])
        )
        client.expect(b"\x20\x02\x00\x04")
        client.expect_closed()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-4", "MQTT-3.2.0-1")
def test_what_follows_connect_waits_until_the_login_is_decided(guarded: BrokerProcess, unique: Unique) -> None:
    with guarded.client() as client:
        client.send(
            wire.connect(unique.client(), username="owner", password=b"o")
            + wire.subscribe(1, [(unique.topic(), 0)])
            + wire.publish(unique.topic(), b"early")
        )
        client.expect(b"\x20\x02\x00\x00")
        client.expect(wire.SubAck, packet_id=1)
        client.expect(Publish, payload=b"early")


@pytest.mark.clause("3.1.1", "MQTT-3.1.3-9", "MQTT-3.2.2-5")
def test_refused_client_id_gets_return_code_2_and_close(guarded: BrokerProcess) -> None:
    with guarded.client() as client:
        client.send(wire.connect("x" * 24, username="owner", password=b"o"))
        client.expect(b"\x20\x02\x00\x02")
        client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.3.5-2")
@pytest.mark.parametrize("retain", [False, True])
def test_forbidden_publish_is_acknowledged_and_goes_nowhere(retain: bool, enter: Enter, unique: Unique) -> None:
    owner, guest = enter("owner"), enter("guest")
    topic = f"secret/{unique}"
    owner.subscribe(topic, qos=1)
    guest.send(wire.publish(topic, b"forbidden", qos=1, packet_id=7, retain=retain))
    try:
        guest.expect(PubAck, packet_id=7)
    except wire.Closed:
        pass
    else:
        guest.ping()
    owner.expect_no_message()
    late = enter("owner")
    late.subscribe(topic)
    late.expect_no_message()
    owner.publish(topic, b"allowed", qos=1)
    owner.expect(Publish, payload=b"allowed")


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_forbidden_filter_gets_the_failure_code_in_its_place(enter: Enter, unique: Unique) -> None:
    guest = enter("guest")
    guest.send(wire.subscribe(6, [(unique.topic("1"), 0), (f"secret/{unique}", 1), (unique.topic("2"), 1)]))
    guest.expect(b"\x90\x05\x00\x06\x00\x80\x01")
    owner = enter("owner")
    owner.publish(f"secret/{unique}", b"hidden", qos=1)
    owner.publish(unique.topic("2"), b"seen", qos=1)
    guest.expect(Publish, payload=b"seen")
    guest.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-5", "MQTT-3.8.4-6")
def test_granted_qos_may_be_lower_than_asked(enter: Enter, unique: Unique) -> None:
    client = enter()
    client.send(wire.subscribe(2, [(unique.topic(), 2)]))
    client.expect(b"\x90\x03\x00\x02\x01")
    client.publish(unique.topic(), b"x", qos=1)
    client.expect(Publish, qos=1)
