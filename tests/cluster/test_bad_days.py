"""Bad input and bad days of a cluster: one clear sentence each, and nothing is lost."""

from __future__ import annotations

import json
import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster_nodes import ClusterNodes, Node
from log_servers import LogServers, Variant
from wire import P, PubAck, Will, publish

FOREVER = (P.SESSION_EXPIRY, 100_000)
PACKET_TOO_LARGE = 0x95
SERVER_UNAVAILABLE = 0x88
USE_ANOTHER_SERVER = 0x9C
STREAM = "holdfast"


@contextmanager
def one_server(
    folder: Path, names: str = "a", variant: Variant | None = None, **settings: Any
) -> Iterator[ClusterNodes]:
    """A log server that stands alone, and nodes that have not been started."""
    cluster = ClusterNodes(folder, names=tuple(names), log_count=1, variant=variant, **settings)
    try:
        cluster.servers.start()
        with cluster.shown():
            yield cluster
    finally:
        cluster.close()


def refusal(node: Node, **settings: Any) -> str:
    """Why a node does not start: what it says last."""
    node.start(wait=False, **settings)
    assert node.wait_exit() != 0
    lines = [line for line in node.output.splitlines() if line.strip()]
    assert "Traceback" not in node.output, node.output
    return lines[-1]


def keep(node: Node, topic: str, payload: str) -> None:
    client = node.client()
    client.connect("")
    client.publish(topic, payload, qos=1, retain=True)
    client.disconnect()


def kept(node: Node, topic: str) -> bytes:
    client = node.client()
    client.connect("")
    client.subscribe(topic, qos=1)
    found = client.messages(1)[0].payload
    client.disconnect()
    return found


# Starting.


def test_a_node_waits_for_log_servers_that_are_not_there_yet(tmp_path: Path) -> None:
    cluster = ClusterNodes(tmp_path, names=("a",), log_count=1)
    try:
        cluster["a"].start(wait=False)
        cluster["a"].wait_output("Connection refused")
        cluster.servers.start()
        cluster["a"].wait_listening()
    finally:
        cluster.close()


def test_wrong_credentials_are_refused_in_one_sentence(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong")
    secret.chmod(0o600)
    with one_server(tmp_path, variant=Variant(user="node", password="right")) as cluster:
        said = refusal(cluster["a"], cluster__user="node", cluster__password_file=secret)
        assert "Authorization" in said or "credentials" in said, said
        secret.write_text("right")
        cluster["a"].start(cluster__user="node", cluster__password_file=secret)


def test_servers_that_do_not_sync_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with one_server(tmp_path, variant=Variant(sync_always=False)) as cluster:
        assert "expected `sync_interval: always`" in refusal(cluster["a"])


def test_a_stream_with_other_settings_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with one_server(tmp_path) as cluster:
        cluster["a"].start()
        cluster["a"].stop()
        name = stream_name(cluster.servers)
        config = cluster.servers.request(f"$JS.API.STREAM.INFO.{name}")["config"]
        cluster.servers.request(f"$JS.API.STREAM.DELETE.{name}")
        cluster.servers.request(f"$JS.API.STREAM.CREATE.{name}", config | {"discard": "old"})
        said = refusal(cluster["a"])
        assert "discard: expected new, got old" in said, said


def test_a_second_node_of_the_same_name_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with one_server(tmp_path) as cluster:
        cluster["a"].start()
        keep(cluster["a"], "t", "1")
        other = Node("a", tmp_path / "other", cluster.servers, {}, False)
        try:
            assert "a node named 'a' is part of this cluster already" in refusal(other)
        finally:
            other.close()
        assert kept(cluster["a"], "t") == b"1"


def test_a_data_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    with one_server(tmp_path, "ab") as cluster:
        cluster["a"].start()
        cluster["a"].stop()
        cluster["b"].folder = cluster["a"].folder
        assert "belongs to node 'a' of a cluster, expected 'b'" in refusal(cluster["b"])
        assert "belongs to name 'holdfast' of a cluster, expected 'other'" in refusal(
            cluster["a"], cluster__name="other"
        )
        cluster["a"].start()


def test_a_data_folder_whose_log_was_made_anew_is_refused(tmp_path: Path) -> None:
    with one_server(tmp_path) as cluster:
        cluster["a"].start()
        keep(cluster["a"], "t", "1")
        cluster["a"].stop()
        cluster.servers.request(f"$JS.API.STREAM.DELETE.{stream_name(cluster.servers)}")
        said = refusal(cluster["a"])
        assert "another" in said, said


# Later.


def test_what_could_not_be_written_to_a_full_log_is_there_when_it_has_room(tmp_path: Path) -> None:
    with one_server(tmp_path) as cluster:
        a = cluster["a"]
        a.start()
        name = stream_name(cluster.servers)
        config = cluster.servers.request(f"$JS.API.STREAM.INFO.{name}")["config"]
        cluster.servers.request(f"$JS.API.STREAM.UPDATE.{name}", config | {"max_bytes": 100_000})
        client = a.client()
        client.connect("w", clean=False, properties=[FOREVER])
        for number in range(20):
            client.send_publish(f"t/{number}", b"x" * 20_000, qos=1, retain=True)
        a.wait_output("the log is full")
        cluster.servers.request(f"$JS.API.STREAM.UPDATE.{name}", config | {"max_bytes": -1})
        for _ in range(20):
            client.expect(PubAck)
        a.restart()
        reader = a.client()
        reader.connect("r")
        reader.subscribe("t/+", qos=1)
        assert len(reader.messages(20)) == 20


def test_a_message_that_the_log_servers_do_not_take_is_refused(tmp_path: Path) -> None:
    with one_server(tmp_path, variant=Variant(max_payload=65_536), cluster__batch=32_768) as cluster:
        a = cluster["a"]
        a.start()
        for retain in (True, False):
            client = a.client()
            client.connect("w")
            client.send(publish("t", b"x" * 80_000, qos=1, retain=retain, packet_id=1, version=5))
            client.expect_disconnect(PACKET_TOO_LARGE)
            old = a.client(version=4)
            old.connect("o")
            old.send(publish("t", b"x" * 80_000, qos=1, retain=retain, packet_id=1, version=4))
            old.expect_closed()
        keep(a, "t", "x" * 60_000)
        assert kept(a, "t") == b"x" * 60_000


def test_an_entry_of_a_newer_version_stops_a_node_with_a_sentence(tmp_path: Path) -> None:
    with one_server(tmp_path) as cluster:
        a = cluster["a"]
        a.start()
        keep(a, "t", "1")
        name = stream_name(cluster.servers)
        subject = cluster.servers.request(f"$JS.API.STREAM.INFO.{name}")["config"]["subjects"][0]
        body = struct.pack("<HBBQQQQQ", 0x4648, 2, 1, 1, 1, 0, 0, 0) + bytes(16) + b"z"
        publish_raw(cluster.servers, subject, struct.pack("<I", zlib.crc32(body)) + body)
        assert a.wait_exit() != 0
        said = a.output.splitlines()[-1]
        assert said.endswith("an entry of the log has format 2, this version reads up to 1: upgrade this node"), said
        assert "Traceback" not in a.output


def test_what_is_larger_than_a_batch_of_the_log_is_taken_nevertheless(tmp_path: Path) -> None:
    with one_server(tmp_path, "ab", variant=Variant(max_payload=196_608)) as cluster:
        cluster.start()
        a = cluster["a"]
        keep(a, "t", "x" * 190_000)
        assert kept(cluster["b"], "t") == b"x" * 190_000
        client = a.client()
        client.connect("s", clean=False, properties=[FOREVER])
        long = [f"{number}/" + "f" * 60_000 for number in range(20)]
        client.subscribe(*long, qos=1)
        for topic in long:
            keep(cluster["b"], topic, "y")
        assert sorted(message.topic for message in client.messages(20)) == sorted(long)
        client.unsubscribe(*long)
        client.subscribe("+/+", qos=1)  # 20 long topics in one snapshot
        assert sorted(message.topic for message in client.messages(20)) == sorted(long)
        big = a.client()
        will = Will("w" * 60_000, b"x" * 60_000, properties=[(P.USER_PROPERTY, ("k", "v" * 45_000))] * 2)
        assert big.connect("big", will=will, check=False).code == PACKET_TOO_LARGE
        keep(a, "after", "1")
        assert kept(cluster["b"], "after") == b"1"


# Damage.


def break_journal(folder: Path) -> None:
    """Flip bits in the middle of the newest segment that has something."""
    segment = max((path for path in (folder / "journal").iterdir() if path.stat().st_size > 4096), key=lambda p: p.name)
    data = bytearray(segment.read_bytes())
    used = len(bytes(data).rstrip(b"\0"))
    middle = used // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    segment.write_bytes(bytes(data))


def break_state(folder: Path) -> None:
    path = folder / "state" / "data.mdb"
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 4096):
        data[at + 100 : at + 200] = b"\x5a" * 100
    path.write_bytes(bytes(data))


def break_all(folder: Path) -> None:
    break_journal(folder)
    break_state(folder)


@pytest.mark.parametrize("damage", [break_journal, break_state, break_all])
def test_a_node_with_damage_on_its_disk_comes_to_hold_what_the_others_hold(tmp_path: Path, damage: Any) -> None:
    with one_server(tmp_path, "ab", cluster__node_timeout=5) as cluster:
        cluster.start()
        writer = cluster.client("a")
        writer.connect("w")
        for number in range(300):
            writer.send_publish(f"t/{number}", f"{number}", qos=1, retain=True)
        for _ in range(300):
            writer.expect(PubAck)
        cluster["b"].stop()  # with all of it on its disk
        damage(cluster["b"].folder)
        cluster["b"].start(wait=False)
        cluster["b"].wait_listening()
        reader = cluster.client("b")
        reader.connect("r")
        reader.subscribe("t/+", qos=1)
        found = {message.topic: message.payload for message in reader.messages(300)}
        assert found == {f"t/{number}": b"%d" % number for number in range(300)}


def stream_name(servers: LogServers) -> str:
    names = servers.request("$JS.API.STREAM.NAMES")["streams"]
    return str(next(name for name in names if not name.startswith(("OBJ_", "KV_"))))


def publish_raw(servers: LogServers, subject: str, payload: bytes) -> None:
    with socket.create_connection(("127.0.0.1", servers[0].client_port), timeout=60) as sock:
        lines = sock.makefile("rb")
        assert lines.readline().startswith(b"INFO")
        sock.sendall(b'CONNECT {"verbose":false}\r\nSUB back 1\r\n')
        sock.sendall(b"PUB %b back %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
        while not lines.readline().startswith(b"MSG"):
            pass
        assert json.loads(lines.readline())["seq"]
