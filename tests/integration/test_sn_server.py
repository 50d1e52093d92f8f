"""MQTT-SN on a real server: logging in, restarts, advertisements, goodbyes, and large snapshots."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from holdfast.net.udp import BURST
from password_file import write_password_file
from ports import free_port
from sn_client import PATIENCE_S, SnClient

BOTH = ("tcp://127.0.0.1:0", "udp://127.0.0.1:0")
Start = Callable[..., BrokerProcess]


def basic_connect(client_id: str, user: str, password: str) -> bytes:
    name, secret = user.encode(), password.encode()
    data = len(name).to_bytes(2, "big") + name + len(secret).to_bytes(2, "big") + secret
    method = b"MQTT-BASIC"
    body = b"\x05\x00\x01\x02\x00\x3c\x00\x00" + bytes((len(method),)) + method
    body += len(data).to_bytes(2, "big") + data + client_id.encode()
    return bytes((len(body) + 2, 1)) + body


def ask(port: int, packet: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(("127.0.0.1", port))
        sock.send(packet)
        return sock.recv(65535)


def test_only_users_of_the_password_file_get_in(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "secret"})
    broker = start_broker(listen=BOTH, auth__password_file=users, retainer__storage_type="ram")
    port = broker.ports["udp"]
    assert ask(port, basic_connect("c1", "ann", "secret"))[5] == 0x00
    assert ask(port, basic_connect("c2", "ann", "wrong"))[5] == 0x86
    assert ask(port, bytes.fromhex("0C 01 01 00 01 02 00 3C 00 00 63 33"))[5] == 0x87
    # 1.2 has no way to log in
    assert ask(port, bytes.fromhex("08 04 04 01 00 3C 63 34")) == bytes.fromhex("03 05 03")


def test_a_client_that_logged_in_is_not_displaced_by_one_that_did_not(start_broker: Start, tmp_path: Path) -> None:
    users = write_password_file(tmp_path / "users", {"ann": "secret"})
    broker = start_broker(
        listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0?allow_anonymous=true"),
        auth__password_file=users,
        retainer__storage_type="ram",
    )
    port = broker.ports["udp"]
    with SnClient(port, 2, "c1") as real:
        real.sock.settimeout(PATIENCE_S)
        real.sock.send(basic_connect("c1", "ann", "secret"))
        assert real.sock.recv(100)[5] == 0
        assert ask(port, bytes.fromhex("0C 01 01 00 01 02 00 3C 00 00 63 31"))[5] == 0x85
        assert ask(port, bytes.fromhex("09 FE 00 02 63 31 03 0E 00")) == bytes.fromhex("04 0E 04 F4")
        real.last_id = 100
        real.ping()


@pytest.mark.parametrize("version", [1, 2], ids=["1.2", "2.0"])
def test_what_was_acknowledged_survives_a_kill(start_broker: Start, tmp_path: Path, version: int) -> None:
    data = tmp_path / "kept"
    broker = start_broker(listen=BOTH, data=data, history__enable=False)
    with SnClient(broker.ports["udp"], version, "sleeper") as sleeper:
        sleeper.connect(clean=False, expiry_s=3600)
        sleeper.subscribe("a/b", 2)
        sleeper.disconnect()
        with SnClient(broker.ports["udp"], version, "writer") as writer:
            writer.connect()
            writer.publish("a/b", b"live", qos=2)
            writer.publish("kept", b"on", qos=1, retain=True)
        broker.kill()
    again = start_broker(listen=BOTH, data=data, history__enable=False)
    with SnClient(again.ports["udp"], version, "sleeper") as back:
        back.names[1] = "a/b"
        back.connect(clean=False, expiry_s=3600)
        back.wait_for(1)
        assert back.messages == [("a/b", b"live", 2, False)]
        back.subscribe("kept", 1)
        back.wait_for(2)
        assert back.messages[1] == ("kept", b"on", 1, True)


def test_an_alias_from_before_a_restart_is_unknown_and_not_another_topic(start_broker: Start, tmp_path: Path) -> None:
    data = tmp_path / "kept"
    broker = start_broker(listen=BOTH, data=data, history__enable=False)
    with SnClient(broker.ports["udp"], 2, "c1") as client:
        client.connect(clean=False, expiry_s=3600)
        answer = client.request((0, 0x10), bytes.fromhex("00 00 50") + b"old/topic", (0, 0x11))
        assert answer[3:5] == b"\x00\x01"
        broker.kill()
    again = start_broker(listen=BOTH, data=data, history__enable=False)
    with SnClient(again.ports["udp"], 2, "c1") as client:
        client.connect(clean=False, expiry_s=3600)
        client.request((0, 0x10), bytes.fromhex("00 00 50") + b"new/topic", (0, 0x11))
        answer = client.request((0, 0x03), bytes.fromhex("20 00 51 00 01 78"), (0, 0x04))
        assert answer == bytes.fromhex("00 51 F0")


def test_advertisements_go_out_again_and_again(start_broker: Start) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(PATIENCE_S)
        place = f"127.0.0.1:{sock.getsockname()[1]}"
        start_broker(
            listen=BOTH, sn__advertise=place, sn__advertise_interval=1, sn__gateway_id=5, retainer__storage_type="ram"
        )
        got = [sock.recv(100).hex(" ") for _ in range(4)]
        assert got == ["05 00 05 00 01", "05 16 05 00 01"] * 2


@pytest.mark.parametrize(("version", "goodbye"), [(1, "02 18"), (2, "04 0e 04 8b")], ids=["1.2", "2.0"])
def test_a_server_that_stops_says_goodbye(start_broker: Start, version: int, goodbye: str) -> None:
    broker = start_broker(listen=BOTH)
    with SnClient(broker.ports["udp"], version, "c1") as client:
        client.connect()
        broker.signal(signal.SIGTERM)
        client.sock.settimeout(PATIENCE_S)
        assert client.sock.recv(100).hex(" ") == goodbye
        assert broker.wait_exit() == 0


def test_a_port_in_use_is_one_clear_line(start_broker: Start) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port))
        with pytest.raises(AssertionError, match=rf"cannot listen on udp://127.0.0.1:{port}: address already in use"):
            start_broker(listen=(f"udp://127.0.0.1:{port}",))


def datagrams_that_wait(size: int) -> int:
    """How many datagrams of this size an ordinary socket keeps for a client that does not read."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as writer,
    ):
        reader.bind(("127.0.0.1", 0))
        reader.setblocking(False)
        for _ in range(reader.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // size):
            writer.sendto(bytes(size), reader.getsockname())
        waiting = 0
        with contextlib.suppress(BlockingIOError):
            while reader.recv(size):
                waiting += 1
        return waiting


@pytest.mark.parametrize("qos", [0, 1])
def test_a_large_snapshot_arrives_whole(start_broker: Start, qos: int) -> None:
    """At QoS 0 nothing can be resent, so the test asks for no more than a socket keeps for a client that reads nothing
    until the end, however busy the machine is. At which pace more than that leaves is told in `unit/net/test_udp.py`.
    """
    count = 2000 if qos else datagrams_that_wait(32) * 3 // 4
    assert count > BURST, "expected room for more than leaves at once"
    broker = start_broker(listen=BOTH, retainer__storage_type="ram")
    with broker.client() as mqtt:
        mqtt.connect("mqtt")
        for number in range(count):
            mqtt.publish(f"set/{number}", b"%d" % number, retain=True, qos=1 if number % 100 == 99 else 0)
    with SnClient(broker.ports["udp"], 2, "reader") as reader:
        reader.connect()
        reader.subscribe("set/#", qos)
        reader.wait_for_payloads({b"%d" % number for number in range(count)})
        reader.ping()
        if qos == 0:
            assert len(reader.messages) == count


def test_mqtt_and_sensors_talk_live_in_both_directions(start_broker: Start) -> None:
    broker = start_broker(listen=BOTH, retainer__storage_type="ram")
    with (
        broker.client(5) as mqtt,
        SnClient(broker.ports["udp"], 1, "one") as one,
        SnClient(broker.ports["udp"], 2, "two") as two,
    ):
        mqtt.connect("mqtt")
        mqtt.subscribe("from/#", qos=2)
        for sensor in (one, two):
            sensor.connect()
            sensor.subscribe("to/sensors", 1)
            sensor.publish(f"from/{sensor.client_id}", b"hello", qos=2)
        mqtt.publish("to/sensors", b"wake", qos=1)
        for sensor in (one, two):
            sensor.wait_for(1)
            assert sensor.messages == [("to/sensors", b"wake", 1, False)]
