"""A broker with its sensors' side and nothing around it: datagrams in, datagrams out, and a clock that stands still.

    world = World()
    world.play("c1", "08 04 04 01 00 3C 63 31 -> 03 05 00")
    world.pass_time(90)

Addresses are plain names. A script is one exchange to a line: what the client sends, `->`, what it must get, several
datagrams separated by commas, `-` for none. `~ 90` lets seconds pass; `< BYTES` is what must have come meanwhile.
"""

from __future__ import annotations

from typing import Any

from core_driver import carry_out
from holdfast.broker.access import Access
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.log import Log
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.broker.settings import Settings
from holdfast.broker.sn.gateway import Gateway
from holdfast.broker.sn.ports import DatagramPeer, Datagrams, SnSettings
from holdfast.protocol.sn.frame import datagrams
from wire_packets import Publish as MqttPublish
from wire_packets import connect, decode, subscribe

START_MS = 1_700_000_000_000
SOMEONE = Publisher("someone", "", "5.0")


class Place(DatagramPeer):
    def __init__(self, air: Air, address: object, envelope: Any) -> None:
        self.air = air
        self.address = address
        self.envelope = envelope

    def write(self, data: bytes) -> None:
        for packet in datagrams(data, self.envelope):
            self.air.sent.append((self.address, packet))

    def close(self, reason: str) -> None:
        self.air.closed.append((self.address, reason))

    def attach(self, connection: Any) -> None:
        pass

    def move(self, address: object, envelope: Any) -> None:
        self.address = address
        self.envelope = envelope


class Air(Datagrams):
    """Everything sent, in order, with the address it went to."""

    def __init__(self) -> None:
        self.sent: list[tuple[object, bytes]] = []
        self.closed: list[tuple[object, str]] = []
        self.challenges = 0x7000

    def open(self, address: object, envelope: Any) -> DatagramPeer:
        return Place(self, address, envelope)

    def unguessable_id(self) -> int:
        self.challenges += 1
        return self.challenges

    def send(self, packet: bytes, address: object, envelope: Any) -> None:
        self.sent.append((address, packet if envelope is None else envelope.wrap(packet)))


class Wire(Peer):
    """The far end of an MQTT connection."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self, reason: str) -> None:
        pass


class World:
    def __init__(self, *, log: Log | None = None, access: Access | None = None, **settings: Any) -> None:
        """Settings of the sensors' side by name; those of the broker with `broker_` in front."""
        core, sensors = Settings(), SnSettings()
        for name, value in settings.items():
            target, key = (core, name.removeprefix("broker_")) if name.startswith("broker_") else (sensors, name)
            assert hasattr(target, key), name
            setattr(target, key, value)
        self.now_ms = START_MS
        self.broker = Broker(core, "auto-")
        if log is not None:
            self.broker.use_log(log)
        self.broker.set_access(access)
        self.air = Air()
        self.gateway = Gateway(self.broker, sensors, self.air)

    # Time and effects.

    def carry_out(self, effects: Effects) -> None:
        carry_out(effects, self.broker.log)
        while self.broker.has_work():
            carry_out(self.broker.work(self.now_ms), self.broker.log)

    def pass_time(self, seconds: float) -> None:
        """In steps of a second at most, as timers would see it."""
        end_ms = self.now_ms + int(seconds * 1000)
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + 500, end_ms)
            self.carry_out(self.broker.tick(self.now_ms))

    # Sensors.

    def send(self, address: object, packet: bytes | str, host: str = "host") -> list[bytes]:
        """One datagram in; what this address gets for it."""
        data = bytes.fromhex(packet) if isinstance(packet, str) else packet
        self.carry_out(self.gateway.receive([(data, address, host)], self.now_ms))
        return self.taken(address)

    def taken(self, address: object) -> list[bytes]:
        """What has been sent to an address since it was last asked for."""
        mine = [packet for to, packet in self.air.sent if to == address]
        self.air.sent = [(to, packet) for to, packet in self.air.sent if to != address]
        return mine

    def play(self, address: object, script: str) -> None:
        for line in script.strip().splitlines():
            step = line.partition(";")[0].strip()
            if not step:
                continue
            if step.startswith("~"):
                self.pass_time(float(step[1:]))
                continue
            if step.startswith("<"):
                assert shown(self.taken(address)) == wanted(step[1:]), step
                continue
            sent, _, expected = step.partition("->")
            got = shown(self.send(address, sent))
            assert got == wanted(expected), f"{step}\ngot {got}"

    # The rest of the world.

    def publish(self, topic: str, payload: str | bytes, qos: int = 0, retain: bool = False) -> None:
        """Somebody else publishes."""
        data = payload.encode() if isinstance(payload, str) else payload
        self.carry_out(self.broker.publish(SOMEONE, topic.encode(), data, qos, retain, self.now_ms))

    def retained(self, topic: str) -> bytes | None:
        message = self.broker.retained.index.get(topic.encode())
        return None if message is None else message.payload

    def listener(self, topic_filter: str = "#", version: int = 4, qos: int = 2) -> Listener:
        return Listener(self, topic_filter, version, qos)


class Listener:
    """An MQTT client that subscribes and never acknowledges: the window is wide enough for a test."""

    count = 0

    def __init__(self, world: World, topic_filter: str, version: int, qos: int) -> None:
        Listener.count += 1
        self.world = world
        self.version = version
        self.wire = Wire()
        self.connection = world.broker.open(self.wire, world.now_ms)
        self.give(connect(f"listener{Listener.count}", version=version, keep_alive=0))
        self.give(subscribe(1, [(topic_filter, qos)], version=version))
        self.wire.data = b""

    def give(self, data: bytes) -> None:
        self.world.carry_out(self.world.broker.receive(self.connection, data, self.world.now_ms))

    def heard(self) -> list[tuple[str, bytes, int, bool]]:
        """Topic, payload, QoS and RETAIN of what came since the last call."""
        data, found = self.wire.data, []
        self.wire.data = b""
        while data:
            size, at, shift = 0, 1, 0
            while True:
                size |= (data[at] & 127) << shift
                shift += 7
                at += 1
                if data[at - 1] < 128:
                    break
            packet = decode(data[: at + size], self.version)
            if isinstance(packet, MqttPublish):
                found.append((packet.topic, packet.payload, packet.qos, packet.retain))
            data = data[at + size :]
        return found


def shown(packets: list[bytes]) -> list[str]:
    return [packet.hex(" ").upper() for packet in packets]


def wanted(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    return [bytes.fromhex(part).hex(" ").upper() for part in parts if part and part != "-"]
