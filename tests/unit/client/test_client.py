"""The client against a broker that follows a script: windows, repeats, losses and bad manners."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.client import Client, Endpoint, Options
from holdfast.errors import ConnectionFailed, ConnectionLost, UsageError
from holdfast.protocol.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    Ack,
    ConnAck,
    Disconnect,
    Ping,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from holdfast.protocol.mqtt.properties import Properties
from scripted_server import ScriptedServer, Visit


def run(coroutine: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


def with_fields(**fields: object) -> Properties:
    properties = Properties()
    for name, value in fields.items():
        setattr(properties, name, value)
    return properties


def client_of(server: ScriptedServer, **options: Any) -> Client:
    return Client(Endpoint("127.0.0.1", server.port), Options(**options))


def test_connect_says_what_the_options_say_and_disconnect_says_goodbye() -> None:
    async def script(visit: Visit) -> None:
        connect = await visit.accept(ConnAck(True, 0))
        assert (connect.client_id, connect.version, connect.clean_start, connect.keep_alive) == ("me", 5, False, 7)
        assert (connect.username, connect.password) == ("u", b"p")
        goodbye = await visit.next()
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason == 4
        assert await visit.next() is None

    async def test() -> None:
        async with ScriptedServer(script) as server:
            options = {"client_id": "me", "version": V5, "clean_start": False, "keep_alive": 7}
            client = client_of(server, username="u", password=b"p", **options)
            connack = await client.connect()
            assert connack.session_present
            await client.disconnect(4)
            await client.disconnect()

    run(test())


@pytest.mark.parametrize(
    ("version", "reason", "message"), [(4, 5, "not authorized"), (V5, 0x86, r"bad user name or password \(who\?\)")]
)
def test_refusal_carries_reason_and_name(version: int, reason: int, message: str) -> None:
    async def script(visit: Visit) -> None:
        await visit.accept(ConnAck(False, reason, with_fields(reason_string="who?")))
        assert await visit.next() is None

    async def test() -> None:
        async with ScriptedServer(script) as server:
            with pytest.raises(ConnectionFailed, match=message) as caught:
                await client_of(server, version=version).connect()
            assert caught.value.reason == reason

    run(test())


def test_a_server_that_is_not_mqtt_is_named_so() -> None:
    async def talker(visit: Visit) -> None:
        await visit.next()
        visit.send_raw(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 200)
        await visit.next()

    async def closer(visit: Visit) -> None:
        await visit.next()

    async def test() -> None:
        async with ScriptedServer(talker, closer) as server:
            with pytest.raises(ConnectionFailed, match="does not speak MQTT"):
                await client_of(server).connect()
            with pytest.raises(ConnectionFailed, match="closed the connection instead of answering CONNECT"):
                await client_of(server).connect()

    run(test())


def test_silence_after_connect_ends_in_time() -> None:
    async def script(visit: Visit) -> None:
        await visit.next()
        assert await visit.next() is None

    async def test() -> None:
        async with ScriptedServer(script) as server:
            with pytest.raises(ConnectionFailed, match=r"did not answer CONNECT within 0\.1 s"):
                await client_of(server, connect_timeout_s=0.1).connect()

    run(test())


@pytest.mark.parametrize(("own", "announced", "window"), [(2, 10, 2), (10, 3, 3)])
def test_no_more_unacknowledged_messages_than_both_sides_allow(own: int, announced: int, window: int) -> None:
    async def script(visit: Visit) -> None:
        await visit.accept(ConnAck(False, 0, with_fields(receive_maximum=announced)))
        first = [await visit.expect(Publish) for _ in range(window)]
        await visit.expect_silence()
        visit.send(Ack(PUBACK, first[0].packet_id))
        one_more = await visit.expect(Publish)
        await visit.expect_silence()
        for packet in [*first[1:], one_more]:
            visit.send(Ack(PUBACK, packet.packet_id))
        for _ in range(6 - window - 1):
            visit.send(Ack(PUBACK, (await visit.expect(Publish)).packet_id))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server, version=V5, max_inflight=own) as client:
            await asyncio.gather(*(client.publish("t", b"%d" % number, 1) for number in range(6)))

    run(test())


def test_qos_2_publish_ends_with_pubcomp() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        publish = await visit.expect(Publish)
        assert (publish.kind, publish.qos, publish.dup) == (PUBLISH, 2, False)
        visit.send(Ack(PUBREC, publish.packet_id))
        assert (await visit.expect(Ack)).kind == PUBREL
        visit.send(Ack(PUBCOMP, publish.packet_id))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server) as client:
            ack = await client.publish("t", b"x", 2)
            assert ack is not None
            assert ack.kind == PUBCOMP

    run(test())


def test_message_is_acknowledged_when_it_is_taken_and_not_before() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send(Publish(b"t", b"x", 1, packet_id=9))
        await visit.expect_silence()
        visit.send(Publish(b"go", b""))
        ack = await visit.expect(Ack)
        assert (ack.kind, ack.packet_id) == (PUBACK, 9)
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server) as client:
            while client.waiting < 2:
                await asyncio.sleep(0.01)
            assert (await client.receive()).topic == b"t"
            assert (await client.receive()).topic == b"go"

    run(test())


def test_qos_2_repeat_is_handed_over_once() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send(Publish(b"t", b"x", 2, packet_id=4))
        assert (await visit.expect(Ack)).kind == PUBREC
        visit.send(Publish(b"t", b"x", 2, False, True, 4))
        assert (await visit.expect(Ack)).kind == PUBREC
        visit.send(Ack(PUBREL, 4))
        assert (await visit.expect(Ack)).kind == PUBCOMP
        visit.send(Publish(b"end", b""))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server) as client:
            assert [(await client.receive()).topic for _ in range(2)] == [b"t", b"end"]

    run(test())


def test_subscribe_and_unsubscribe_bring_their_answers() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        subscribe = await visit.expect(Subscribe)
        assert [item.topic_filter for item in subscribe.requests] == [b"a", b"b"]
        visit.send(SubAck(SUBACK, subscribe.packet_id, [1, 0x80]))
        unsubscribe = await visit.next()
        assert isinstance(unsubscribe, Unsubscribe)
        visit.send(SubAck(UNSUBACK, unsubscribe.packet_id, []))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server) as client:
            answer = await client.subscribe([SubscriptionRequest(b"a", 1), SubscriptionRequest(b"b", 1)])
            assert answer.reasons == [1, 0x80]
            await client.unsubscribe([b"a"])

    run(test())


def test_topic_aliases_of_the_server_are_resolved() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send(Publish(b"long/topic", b"1", properties=with_fields(topic_alias=1)))
        visit.send(Publish(b"", b"2", properties=with_fields(topic_alias=1)))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        properties = with_fields(topic_alias_maximum=1)
        async with ScriptedServer(script) as server, client_of(server, version=V5, properties=properties) as client:
            assert [(await client.receive()).topic for _ in range(2)] == [b"long/topic"] * 2

    run(test())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"\x30\x06\x00\x00\x03\x23\x00\x05", 0x94, id="alias above the maximum"),
        pytest.param(b"\x30\x06\x00\x00\x03\x23\x00\x01", 0x82, id="alias without a topic"),
        pytest.param(b"\x36\x02\x00\x00", 0x81, id="QoS 3"),
        pytest.param(b"\x20\x03\x00\x00\x00", 0x82, id="second CONNACK"),
        pytest.param(b"\x30\xff\xff\xff\x7f", 0x95, id="packet over the maximum"),
    ],
)
def test_broken_protocol_is_answered_with_its_reason(raw: bytes, reason: int) -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send_raw(raw)
        goodbye = await visit.next()
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason == reason
        assert await visit.next() is None

    async def test() -> None:
        properties = with_fields(topic_alias_maximum=2, maximum_packet_size=1000)
        async with ScriptedServer(script) as server:
            client = client_of(server, version=V5, properties=properties)
            await client.connect()
            with pytest.raises(ConnectionFailed, match="broke the protocol") as caught:
                await client.receive()
            assert caught.value.reason == reason
            await client.disconnect()

    run(test())


def test_packet_the_server_would_refuse_is_not_sent() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept(ConnAck(False, 0, with_fields(maximum_packet_size=50)))
        publish = await visit.expect(Publish)
        assert publish.payload == b"small"
        visit.send(Ack(PUBACK, publish.packet_id))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server, version=V5, max_inflight=1) as client:
            with pytest.raises(UsageError, match="no more than 50"):
                await client.publish("t", bytes(100), 1)
            await client.publish("t", b"small", 1)

    run(test())


def test_silent_connection_is_pinged_and_an_answer_keeps_it() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept(ConnAck(False, 0, with_fields(server_keep_alive=1)))
        for _ in range(2):
            ping = await visit.expect(Ping)
            assert ping.kind == PINGREQ
            visit.send(Ping(PINGRESP))
        visit.send(Publish(b"end", b""))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(script) as server, client_of(server, version=V5, keep_alive=60) as client:
            assert (await client.receive()).topic == b"end"

    run(test())


def test_unanswered_ping_ends_the_connection() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        assert (await visit.expect(Ping)).kind == PINGREQ
        assert await visit.next() is None

    async def test() -> None:
        async with ScriptedServer(script) as server:
            client = client_of(server, keep_alive=1)
            await client.connect()
            with pytest.raises(ConnectionLost, match="no answer to a ping within 1 s"):
                await client.receive()
            await client.disconnect()

    run(test())


def test_everyone_who_waits_hears_of_the_end() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        for _ in range(2):
            await visit.next()
        visit.send(Publish(b"last", b""))

    async def test() -> None:
        async with ScriptedServer(script) as server:
            client = client_of(server, max_inflight=1)
            await client.connect()
            waiting = [
                asyncio.create_task(client.publish("t", b"", 1)),
                asyncio.create_task(client.publish("t", b"", 1)),
                asyncio.create_task(client.subscribe([SubscriptionRequest(b"a")])),
            ]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(result) for result in results] == [ConnectionLost] * 3
            assert (await client.receive()).topic == b"last"
            with pytest.raises(ConnectionLost, match="closed by the other side"):
                await client.receive()
            with pytest.raises(ConnectionLost):
                await client.lost()
            await client.disconnect()

    run(test())


def test_disconnect_of_the_server_is_told_with_its_reason() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send(Disconnect(0x8B, with_fields(reason_string="good night")))

    async def test() -> None:
        async with ScriptedServer(script) as server:
            client = client_of(server, version=V5)
            await client.connect()
            with pytest.raises(ConnectionLost, match=r"server shutting down \(good night\)") as caught:
                await client.receive()
            assert caught.value.reason == 0x8B
            await client.disconnect()

    run(test())


def test_reconnect_to_a_kept_session_sends_again_with_dup() -> None:
    async def first(visit: Visit) -> None:
        await visit.accept()
        publish = await visit.expect(Publish)
        assert not publish.dup
        visit.send(Publish(b"not taken", b"", 1, packet_id=3))

    async def second(visit: Visit) -> None:
        await visit.accept(ConnAck(True, 0))
        publish = await visit.expect(Publish)
        assert (publish.payload, publish.dup, publish.packet_id) == (b"x", True, 1)
        visit.send(Ack(PUBACK, 1), Publish(b"not taken", b"", 1, False, True, 3))
        ack = await visit.expect(Ack)
        assert (ack.kind, ack.packet_id) == (PUBACK, 3)
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        options = {"client_id": "me", "clean_start": False, "reconnect": True}
        async with ScriptedServer(first, second) as server, client_of(server, **options) as client:
            await client.publish("t", b"x", 1)
            assert (await client.receive()).topic == b"not taken"
            assert client.waiting == 0

    run(test())


def test_reconnect_without_a_session_subscribes_again() -> None:
    async def first(visit: Visit) -> None:
        await visit.accept()
        subscribe = await visit.expect(Subscribe)
        visit.send(SubAck(SUBACK, subscribe.packet_id, [1]))

    async def second(visit: Visit) -> None:
        await visit.accept()
        subscribe = await visit.expect(Subscribe)
        assert [(item.topic_filter, item.qos) for item in subscribe.requests] == [(b"a", 1)]
        visit.send(SubAck(SUBACK, subscribe.packet_id, [1]), Publish(b"a", b"after"))
        assert isinstance(await visit.next(), Disconnect)

    async def test() -> None:
        async with ScriptedServer(first, second) as server, client_of(server, reconnect=True) as client:
            await client.subscribe([SubscriptionRequest(b"a", 1)])
            assert (await client.receive()).payload == b"after"

    run(test())


@pytest.mark.parametrize("reason", [0x8E, 0x98])
def test_no_reconnect_when_the_server_wants_us_gone(reason: int) -> None:
    """Two clients of one id that both come back would throw each other out for ever."""

    async def script(visit: Visit) -> None:
        await visit.accept()
        visit.send(Disconnect(reason))

    async def test() -> None:
        async with ScriptedServer(script) as server:
            client = client_of(server, version=V5, reconnect=True)
            await client.connect()
            with pytest.raises(ConnectionLost):
                await client.receive()
            await client.disconnect()

    run(test())


def test_trace_sees_each_packet_both_ways() -> None:
    seen = []

    async def script(visit: Visit) -> None:
        await visit.accept()
        await visit.next()

    async def test() -> None:
        trace = lambda direction, packet: seen.append((direction, packet.kind))  # noqa: E731
        async with ScriptedServer(script) as server, client_of(server, trace=trace):
            pass

    run(test())
    assert seen == [("sending", 1), ("received", 2), ("sending", 14)]
