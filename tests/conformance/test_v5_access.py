"""MQTT 5.0: refusals by a broker with users and access rules, and what may be said about them."""

from collections.abc import Callable, Iterator

import pytest

import wire
from broker_process import BrokerProcess, Unique
from password_file import write_password_file
from v5_client import (
    PUBACK_CODES,
    PUBREC_CODES,
    SUBACK_CODES,
    Connect5,
    Open5,
    broker_with,
    expect_refused,
    tight_limit,
)
from wire import Acknowledgement, P, PubAck, Publish, PubRec, SubAck, UnsubAck, WireClient

RULES = [
    {"permission": "deny", "action": ["publish", "subscribe"], "filter": "secret/#", "user": "guest"},
    {"permission": "allow", "action": "all", "filter": ["#", "$SYS/#"]},
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Users owner and guest; guest may neither publish nor subscribe to secret/#."""
    folder = tmp_path_factory.mktemp("guarded")
    users = write_password_file(folder / "users", {"owner": "owner's", "guest": "guest's"})
    yield from broker_with(folder / "data", auth__password_file=users, access=RULES)


@pytest.fixture
def enter(guarded: BrokerProcess, connect5: Connect5) -> Callable[..., WireClient]:
    """A client connected as one of the users."""

    def start(user: str = "guest", **fields: object) -> WireClient:
        return connect5(port=guarded.port, username=user, password=f"{user}'s".encode(), **fields)

    return start


Enter = Callable[..., WireClient]

LOGINS = {
    "wrong password": (0x86, {"username": "owner", "password": b"guest's"}),
    "unknown user": (0x86, {"username": "nobody", "password": b"owner's"}),
    "no password": (0x86, {"username": "owner"}),
    "no user name": (0x87, {"password": b"owner's"}),
    "nothing": (0x87, {}),
}


@pytest.mark.clause("5.0", "MQTT-3.1.4-2", "MQTT-4.12.0-4", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-3.2.2-8")
@pytest.mark.parametrize(("code", "login"), LOGINS.values(), ids=LOGINS.keys())
def test_a_failed_login_is_refused(
    open5: Open5, guarded: BrokerProcess, unique: Unique, code: int, login: dict[str, object]
) -> None:
    client = open5(port=guarded.port)
    client.send(wire.connect(unique.client(), version=5, clean=False, **login))  # type: ignore[arg-type]
    expect_refused(client, code)


@pytest.mark.clause("5.0", "MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.1.3-1", "MQTT-3.1.4-5")
def test_a_good_login_is_read_behind_a_will(enter: Enter, unique: Unique) -> None:
    will = wire.Will(unique.topic(), b"gone", qos=1, properties=[(P.USER_PROPERTY, ("a", "b"))])
    assert enter("owner", will=will).connack is not None


@pytest.mark.clause("5.0", "MQTT-3.1.4-6")
def test_nothing_behind_a_failed_login_is_processed(
    open5: Open5, guarded: BrokerProcess, enter: Enter, unique: Unique
) -> None:
    watcher = enter("owner")
    watcher.subscribe(unique.topic())
    client = open5(port=guarded.port)
    hello = wire.connect(unique.client("bad"), version=5, username="owner", password=b"wrong")
    client.send(hello + wire.publish(unique.topic(), b"sneaked in", version=5) + wire.pingreq())
    expect_refused(client, 0x86)
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.3.4-1")
@pytest.mark.parametrize(("qos", "kind"), [(1, PubAck), (2, PubRec)])
def test_a_forbidden_publish_is_answered_with_0x87_and_goes_nowhere(
    enter: Enter, unique: Unique, qos: int, kind: type[Acknowledgement]
) -> None:
    watcher, client = enter("owner"), enter("guest")
    watcher.subscribe(f"secret/{unique}", qos=2)
    client.send_publish(f"secret/{unique}", b"1", qos=qos, retain=True)
    assert client.expect(kind).reason == 0x87
    client.ping()
    watcher.expect_no_message()
    watcher.subscribe(f"secret/{unique}")
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.3.3-9")
def test_after_a_refusing_pubrec_the_identifier_means_a_new_message(enter: Enter, unique: Unique) -> None:
    """No PUBREL follows a refusal, so the next PUBLISH with that identifier is not taken for a repeat."""
    watcher, client = enter("owner"), enter("guest")
    watcher.subscribe(unique.topic(), qos=2)
    client.send(wire.publish(f"secret/{unique}", b"refused", qos=2, packet_id=5, version=5))
    assert client.expect(PubRec, packet_id=5).reason >= 0x80
    client.send(wire.publish(unique.topic(), b"new", qos=2, packet_id=5, version=5))
    client.expect(PubRec, packet_id=5, reason=0)
    client.send(wire.pubrel(5))
    client.expect(wire.PubComp, packet_id=5, reason=0)
    watcher.expect(Publish, payload=b"new")
    client.send(wire.publish(f"secret/{unique}", b"refused", qos=2, packet_id=5, version=5))
    assert client.expect(PubRec, packet_id=5).reason >= 0x80


@pytest.mark.clause("5.0", "MQTT-3.3.4-7", "MQTT-4.4.0-2")
def test_refused_messages_take_no_place_in_the_brokers_window(enter: Enter, unique: Unique) -> None:
    client = enter("guest")
    assert client.connack is not None
    count = client.connack.prop(P.RECEIVE_MAXIMUM) + 10
    client.send(
        b"".join(wire.publish(f"secret/{unique}", b"", qos=2, packet_id=n, version=5) for n in range(1, count + 1))
    )
    for number in range(1, count + 1):
        client.expect(PubRec, packet_id=number, reason=0x87)


@pytest.mark.clause("5.0", "MQTT-3.8.4-6", "MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_a_forbidden_filter_fails_in_its_place_among_others(enter: Enter, unique: Unique) -> None:
    client = enter("guest")
    filters = [(unique.topic("a"), 1), (f"secret/{unique}", 2), (unique.topic("b"), 2)]
    client.send(wire.subscribe(3, filters, version=5))
    client.expect(SubAck, packet_id=3, codes=[1, 0x87, 2])
    owner = enter("owner")
    owner.publish(f"secret/{unique}", b"hidden", qos=1)
    owner.publish(unique.topic("b"), b"seen", qos=1)
    client.expect(Publish, payload=b"seen")
    client.expect_no_message()


# Problem information


def refused_publish(client: WireClient, unique: Unique, qos: int) -> Acknowledgement:
    client.send(wire.publish(f"secret/{unique}", b"1", qos=qos, packet_id=9, version=5))
    return client.expect(PubAck if qos == 1 else PubRec, packet_id=9, reason=0x87)


@pytest.mark.clause("5.0", "MQTT-3.1.2-29")
def test_without_problem_information_no_acknowledgement_explains_itself(enter: Enter, unique: Unique) -> None:
    client = enter("guest", properties=[(P.REQUEST_PROBLEM_INFO, 0)])
    assert refused_publish(client, unique, 1).properties == []
    assert refused_publish(client, unique, 2).properties == []
    assert client.subscribe(f"secret/{unique}", check=False).properties == []
    assert client.unsubscribe(unique.topic()).properties == []
    for packet, kind in ((wire.pubrec(700), wire.PubRel), (wire.pubrel(700), wire.PubComp)):
        client.send(packet)
        assert client.expect(kind, packet_id=700).properties == []


@pytest.mark.clause("5.0", "MQTT-3.1.2-29")
@pytest.mark.parametrize("asked", [[], [(P.REQUEST_PROBLEM_INFO, 1)]], ids=["by default", "asked for"])
def test_with_problem_information_a_refusal_explains_itself(
    enter: Enter, unique: Unique, asked: list[wire.Property]
) -> None:
    client = enter("guest", properties=asked)
    assert refused_publish(client, unique, 1).prop(P.REASON_STRING)
    assert refused_publish(client, unique, 2).prop(P.REASON_STRING)
    assert client.subscribe(f"secret/{unique}", check=False).prop(P.REASON_STRING)


@pytest.mark.clause("5.0", "MQTT-3.1.2-29")
def test_without_problem_information_messages_keep_their_user_properties(enter: Enter, unique: Unique) -> None:
    client = enter("guest", properties=[(P.REQUEST_PROBLEM_INFO, 0)])
    client.subscribe(unique.topic())
    client.publish(unique.topic(), b"1", properties=[(P.USER_PROPERTY, ("a", "b"))])
    client.expect(Publish, properties=[(P.USER_PROPERTY, ("a", "b"))])


Ask = Callable[[WireClient, Unique], Acknowledgement | SubAck | UnsubAck]

ASK: dict[str, Ask] = {
    "PUBACK": lambda client, unique: refused_publish(client, unique, 1),
    "PUBREC": lambda client, unique: refused_publish(client, unique, 2),
    "SUBACK": lambda client, unique: client.subscribe(f"secret/{unique}", check=False, packet_id=9),
}
CODES = {"PUBACK": PUBACK_CODES, "PUBREC": PUBREC_CODES, "SUBACK": SUBACK_CODES}


@pytest.mark.clause(
    "5.0", "MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2"
)
@pytest.mark.parametrize("name", ASK.keys())
def test_a_refusal_gives_up_its_explanation_before_it_outgrows_the_client(
    enter: Enter, unique: Unique, name: str
) -> None:
    client = enter("guest")
    full = ASK[name](client, unique)
    limit = tight_limit(client, full)
    short = ASK[name](enter("guest", properties=[(P.MAXIMUM_PACKET_SIZE, limit)]), unique)
    assert len(short.raw) <= limit
    assert {getattr(short, "reason", None)} | set(getattr(short, "codes", [])) <= CODES[name] | {None}


@pytest.mark.clause("5.0", "MQTT-3.2.2-19", "MQTT-3.2.2-20")
@pytest.mark.parametrize("size", [5, 8, 20, 40])
def test_a_refused_login_is_told_in_a_packet_that_fits_the_client(
    open5: Open5, guarded: BrokerProcess, unique: Unique, size: int
) -> None:
    client = open5(port=guarded.port)
    client.send(wire.connect(unique.client(), version=5, properties=[(P.MAXIMUM_PACKET_SIZE, size)]))
    answer = expect_refused(client, 0x87)
    assert answer is not None
    assert len(answer.raw) <= size
