"""MQTT-SN: how many virtual connections fit, how many publishes come in beside MQTT's, and what idle ones cost."""

import multiprocessing
import os
import socket
import time
from multiprocessing.connection import Connection

from holdfast_bench.connection import LoadError
from peers import GENERATOR_CORES, HOLDFASTS, MEMORY_ONLY, Running
from scenario import Figure, Figures, Scenario
from throughput import measured

CLIENTS = 20_000
WINDOW = 64  # CONNECTs under way; more would overrun the socket's buffer
PUBLISHERS = 100
TOPIC = b"bench/sn"
PAYLOAD = b"x" * 16
SECONDS = 2.0
SETTLE_S = 11.0  # until the timers of the handshakes have run out: it is the idle ones that are looked at
MQTT_RATE = 20_000.0  # messages a second that MQTT moves meanwhile

FORWARDER = b"\x06\xfe\x00"
MQTT_CONNECT = bytes.fromhex("10 10 00 04 4D 51 54 54 04 02 00 00 00 04") + b"snct"


class Forwarder:
    """One socket with many nodes behind it: each is a virtual connection of its own."""

    def __init__(self, port: int) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self.sock.connect(("127.0.0.1", port))
        self.sock.settimeout(10)

    def envelope(self, node: int) -> bytes:
        return FORWARDER + node.to_bytes(3, "big")

    def ask(self, node: int, packet: bytes) -> None:
        self.sock.send(self.envelope(node) + packet)

    def answers(self, count: int, kind: int) -> None:
        for _ in range(count):
            try:
                answer = self.sock.recv(1000)[6:]
            except TimeoutError:
                raise LoadError("a sensor was not answered in 10 s") from None
            if answer[1] != kind or answer[-1] != 0:
                raise LoadError(f"a sensor was answered with {answer.hex(' ')}")

    def connect(self, first: int, count: int) -> None:
        for start in range(first, first + count, WINDOW):
            nodes = range(start, min(start + WINDOW, first + count))
            for node in nodes:
                client_id = f"bench-sn-{node}".encode()
                self.ask(node, bytes((len(client_id) + 6, 0x04, 0x04, 0x01, 0x00, 0x00)) + client_id)
            self.answers(len(nodes), 0x05)

    def register(self, node: int) -> None:
        self.ask(node, bytes((len(TOPIC) + 6, 0x0A, 0, 0, 0, 1)) + TOPIC)
        self.answers(1, 0x0B)


def idle_sensors(running: Running) -> Figures:
    """What an MQTT message costs before and after there are many idle sensors, and the memory that they take.

    Processor time, not rate: it says the same on a machine that others use too.
    """
    measured(running)  # the first run pays for what is only done once
    before = measured(running)["cpu_us"]
    memory = running.memory()
    began = time.monotonic()
    Forwarder(running.udp_port).connect(0, CLIENTS)
    took_s = time.monotonic() - began
    time.sleep(SETTLE_S)
    after = measured(running)["cpu_us"]
    return {
        "bytes_each": (running.memory() - memory) / CLIENTS,
        "connects_per_s": CLIENTS / took_s,
        "mqtt_before": before,
        "mqtt_after": after,
        "mqtt_ratio": after / before,
    }


def publishes_in(running: Running) -> Figures:
    """Sensors publish as fast as they can for a while; what an MQTT subscriber has by then was taken in."""
    forwarder = Forwarder(running.udp_port)
    forwarder.connect(0, PUBLISHERS)
    for node in range(PUBLISHERS):
        forwarder.register(node)
    results, ours = multiprocessing.Pipe(False)
    counter = multiprocessing.Process(target=count_messages, args=(running.port, SECONDS, ours))
    counter.start()
    if not results.poll(10) or results.recv() != "ready":
        raise LoadError("the counting subscriber did not start")
    before_s = running.cpu_seconds()
    told, telling = multiprocessing.Pipe(False)
    flood = multiprocessing.Process(target=publish, args=(forwarder, SECONDS, telling))
    flood.start()
    mqtt = measured(running, rate=MQTT_RATE)["received_per_s"]
    sent = told.recv()
    flood.join()
    if not results.poll(30):
        raise LoadError("the counting subscriber gave no result")
    count = results.recv()
    counter.join()
    cpu_s = running.cpu_seconds() - before_s
    return {
        "offered_per_s": sent / SECONDS,
        "published_per_s": count / SECONDS,
        "taken": count / sent,
        "mqtt_per_s": mqtt,
        "per_core_s": count / cpu_s,
    }


def publish(forwarder: Forwarder, seconds: float, telling: Connection) -> None:
    os.sched_setaffinity(0, GENERATOR_CORES)
    packet = bytes((len(PAYLOAD) + 7, 0x0C, 0x00, 0, 1, 0, 0)) + PAYLOAD
    packets = [forwarder.envelope(node) + packet for node in range(PUBLISHERS)]
    send = forwarder.sock.send
    sent = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for datagram in packets:
            send(datagram)
        sent += len(packets)
    telling.send(sent)


def count_messages(port: int, seconds: float, results: Connection) -> None:
    """A subscriber that only counts bytes: every message has the same size."""
    size = 4 + len(TOPIC) + len(PAYLOAD)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(MQTT_CONNECT)
        sock.recv(4)
        sock.sendall(bytes((0x82, len(TOPIC) + 5, 0, 1, 0, len(TOPIC))) + TOPIC + b"\0")
        sock.recv(5)
        results.send("ready")
        sock.settimeout(1.0)
        received = 0
        deadline = time.monotonic() + seconds + 3
        while time.monotonic() < deadline:
            try:
                received += len(sock.recv(1 << 20))
            except TimeoutError:
                if received:
                    break
        results.send(received // size)


SCENARIOS = (
    Scenario(
        "sn-idle",
        f"{CLIENTS:,} idle MQTT-SN clients",
        idle_sensors,
        (
            Figure("bytes_each", "memory each", "bytes", more_is_better=False, of=MEMORY_ONLY, at_most=8 * 1024),
            Figure("connects_per_s", "connecting", "clients/s"),
            Figure("mqtt_before", "MQTT message without them", "us", more_is_better=False),
            Figure("mqtt_after", "MQTT message beside them", "us", more_is_better=False),
            Figure("mqtt_ratio", "beside to without", "times", more_is_better=False, of=MEMORY_ONLY, at_most=1.05),
        ),
        rounds=2,
        peers=HOLDFASTS,
    ),
    Scenario(
        "sn-publish",
        f"MQTT-SN publishes at QoS 0, beside {MQTT_RATE:,.0f} MQTT messages a second",
        publishes_in,
        (
            Figure("offered_per_s", "sent by the generator", "msgs/s"),
            Figure("published_per_s", "taken in", "msgs/s", of=MEMORY_ONLY, at_least=50_000),
            Figure("taken", "taken in of what was sent", "share"),
            Figure("mqtt_per_s", "MQTT meanwhile", "msgs/s"),
            Figure("per_core_s", "for each second of its core, MQTT included", "msgs", of=MEMORY_ONLY, at_least=50_000),
        ),
        rounds=3,
        peers=HOLDFASTS,
    ),
)
