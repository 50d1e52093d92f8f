from dataclasses import replace
from typing import Any

import pytest

from holdfast.cli.client_options import NEVER, Flags, Target, check_topic, resolve
from holdfast.client.endpoint import TCP, TLS, UNIX, WS, TlsOptions
from holdfast.errors import UsageError
from holdfast.protocol.mqtt.packets import V5, V31, V311, Will
from holdfast.protocol.mqtt.properties import Properties

COMMANDS = ("connect", "publish", "will")
NOTHING = Flags(
    host=None,
    port=None,
    url=None,
    unix=None,
    bind=None,
    keep_alive=60,
    version=None,
    property_words=None,
    username=None,
    password=None,
    client_id=None,
    client_id_prefix=None,
    keep_session=False,
    session_expiry=None,
    will_topic=None,
    will_payload=None,
    will_qos=None,
    will_retain=False,
    tls=TlsOptions(),
    os_certs=False,
    debug=False,
)


def given(**flags: Any) -> Target:
    return resolve(replace(NOTHING, **flags), COMMANDS)


def properties_of(target: Target) -> Properties:
    assert target.options.properties is not None
    return target.options.properties


def will_of(target: Target) -> Will:
    assert target.options.will is not None
    return target.options.will


def test_without_flags_it_is_mosquittos_default() -> None:
    target = given()
    assert (str(target.endpoint), target.endpoint.transport) == ("localhost:1883", TCP)
    assert (target.options.version, target.options.clean_start, target.options.client_id) == (V311, True, "")
    assert target.topic is None


@pytest.mark.parametrize(
    ("flags", "transport", "place"),
    [
        ({"host": "h", "port": 5}, TCP, "h:5"),
        ({"port": 8883}, TLS, "localhost:8883"),
        ({"tls": TlsOptions(cafile="ca.pem")}, TLS, "localhost:8883"),
        ({"os_certs": True, "port": 5}, TLS, "localhost:5"),
        ({"url": "mqtt://h:5/t"}, TCP, "h:5"),
        ({"url": "mqtt://h:5/t", "host": "other", "port": 6}, TCP, "other:6"),
        ({"url": "mqtts://h/t"}, TLS, "h:8883"),
        ({"url": "ws://h:5/path"}, WS, "h:5"),
        ({"unix": "/run/x"}, UNIX, "/run/x"),
    ],
)
def test_flags_choose_where_and_how(flags: dict[str, Any], transport: str, place: str) -> None:
    endpoint = given(**flags).endpoint
    assert (endpoint.transport, str(endpoint)) == (transport, place)


def test_url_brings_topic_and_user() -> None:
    target = given(url="mqtt://u:p@h/a/b")
    assert (target.topic, target.options.username, target.options.password) == ("a/b", "u", b"p")
    assert given(url="mqtt://u:p@h/a", username="x", password="y").options.password == b"y"


@pytest.mark.parametrize(
    ("text", "version"),
    [("5", V5), ("mqttv5", V5), ("311", V311), ("MQTTv311", V311), ("31", V31), ("mqttv31", V31)],
)
def test_versions_have_mosquittos_names(text: str, version: int) -> None:
    assert given(version=text).options.version == version


def test_properties_and_expiry_select_mqtt_5() -> None:
    words = ["publish\0content-type\0x", "connect\0receive-maximum\x005"]
    target = given(property_words=words)
    assert target.options.version == V5
    assert properties_of(target).receive_maximum == 5
    assert target.properties["publish"].content_type == "x"
    assert properties_of(given(session_expiry="30")).session_expiry == 30


@pytest.mark.parametrize(("text", "seconds"), [("-1", NEVER), ("∞", NEVER), ("0", 0), ("4294967295", NEVER)])
def test_session_expiry_may_be_never(text: str, seconds: int) -> None:
    assert properties_of(given(session_expiry=text)).session_expiry == seconds


def test_kept_session_never_expires_in_5_unless_told() -> None:
    assert properties_of(given(keep_session=True, client_id="me", version="5")).session_expiry == NEVER
    both = given(keep_session=True, client_id="me", session_expiry="9")
    assert (both.options.clean_start, properties_of(both).session_expiry) == (False, 9)
    assert given(keep_session=True, client_id="me").options.properties is None


def test_31_has_no_empty_client_id() -> None:
    assert given(version="31").options.client_id.startswith("holdfast-")
    assert given(client_id_prefix="dev-").options.client_id.removeprefix("dev-").isdecimal()


def test_will_is_built_from_its_flags() -> None:
    words = ["will\0will-delay-interval\x005"]
    will = will_of(given(will_topic="w", will_payload="gone", will_qos=1, will_retain=True, property_words=words))
    assert (will.topic, will.payload, will.qos, will.retain) == (b"w", b"gone", 1, True)
    assert will.properties is not None
    assert will.properties.will_delay == 5
    assert will_of(given(will_topic="w")).payload == b""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"version": "4"}, "-V is '4', expected 5, 311 or 31"),
        ({"version": "311", "property_words": ["publish\0content-type\0x"]}, "-D needs MQTT 5"),
        ({"version": "31", "session_expiry": "5"}, "-x needs MQTT 5"),
        ({"session_expiry": "soon"}, "-x is 'soon'"),
        ({"keep_session": True}, "needs a client id: -i ID"),
        ({"client_id": "a", "client_id_prefix": "b"}, "-i and -I"),
        ({"password": "p"}, "-P without -u needs MQTT 5"),
        ({"will_payload": "x"}, "--will-payload needs --will-topic"),
        ({"will_qos": 0}, "--will-qos needs --will-topic"),
        ({"will_retain": True}, "--will-retain needs --will-topic"),
        ({"property_words": ["will\0content-type\0x"]}, "-D will needs --will-topic"),
        ({"will_topic": "a/#"}, "topic is 'a/#'"),
        ({"url": "h"}, "expected one of mqtt://"),
    ],
)
def test_flags_that_contradict_each_other_say_how(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        given(**flags)


def test_password_alone_is_fine_in_5() -> None:
    assert given(password="p", version="5").options.password == b"p"


@pytest.mark.parametrize("topic", ["", "a/+", "#", "\udcff"])
def test_topic_that_cannot_be_published_to_is_refused(topic: str) -> None:
    with pytest.raises(UsageError):
        check_topic(topic)
