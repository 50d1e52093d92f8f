"""What is fuzzed: functions from bytes, each of which may raise nothing that is not a bug.

A target says for itself what is allowed: a parser answers with a value or with the error it is documented to raise;
what it accepts must mean the same when it is written and read again; a broker that is fed garbage stays a broker.
Nothing here needs a fuzzer, so every input that was ever of interest is also an ordinary test.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from core_driver import carry_out
from holdfast.access.mosquitto_file import parse_access
from holdfast.broker.access import PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access
from holdfast.broker.core import Broker
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.broker.record_shape import is_whole, sound_only
from holdfast.broker.records import PUBLISH as PUBLISH_RECORD
from holdfast.broker.records import Columns, Publishers, decode_publish, publish_topic, record_kind
from holdfast.broker.settings import Settings as BrokerSettings
from holdfast.broker.sn.gateway import Gateway
from holdfast.broker.sn.ports import DatagramPeer, Datagrams, SnSettings
from holdfast.config.listener import parse_listener
from holdfast.config.load import Merge, describe, flatten, nested
from holdfast.config.settings import Settings
from holdfast.errors import ConfigError, HoldfastError, ProtocolError, StoreError
from holdfast.from_settings import toml_rules
from holdfast.identity.passwords import is_known
from holdfast.identity.scram import Lookup, ScramExchange, derive, parse_verifier
from holdfast.journal.reader import Reader
from holdfast.journal.record import RECORD_MIN, frame_all
from holdfast.journal.segment import SegmentName, checksum, encode_head
from holdfast.net.proxy_protocol import parse_header
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import FrameBuffer
from holdfast.protocol.sn import detect, v2_decode, v2_encode, v12
from holdfast.state.store import StateStore
from packet_strategies import plain

VERSIONS = (3, 4, 5)
NOW_MS = 1_700_000_000_000
# Syncing to a disk would be nearly all of the time.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def mqtt_decoder(data: bytes) -> None:
    """First byte: the version, and who sent it. The rest is a stream."""
    if not data:
        return
    version, from_server = VERSIONS[data[0] % 3], data[0] & 4 != 0
    buffer = FrameBuffer()
    buffer.feed(data[1:])
    try:
        while (frame := buffer.take()) is not None:
            packet = decode(frame[0], frame[1], version, from_server)
            spoken = getattr(packet, "version", version)
            again = FrameBuffer()
            again.feed(encode(packet, spoken))
            first, body = again.take()  # type: ignore[misc]
            assert plain(decode(first, body, spoken, from_server)) == plain(packet)
    except ProtocolError as error:
        if not 0x80 <= error.reason <= 0xFF:
            raise AssertionError(f"reason 0x{error.reason:02X} says success") from error


class Ear(Peer):
    """The far end of a connection."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed

    def close(self, reason: str) -> None:
        self.closed = True


def small_broker() -> Broker:
    settings = BrokerSettings()
    settings.max_packet_size = 4096
    settings.max_bytes_before_login = 1024
    return Broker(settings, "hf-")


def mqtt_broker(data: bytes) -> None:
    """Two clients feed one broker by turns; a first byte says who is next and how much of the rest is theirs."""
    broker = small_broker()
    carry_out(broker.publish(Publisher("", "", "api"), b"kept", b"1", 1, True, NOW_MS))
    connections = [broker.open(Ear(), NOW_MS) for _ in range(2)]
    position = 0
    now_ms = NOW_MS
    while position < len(data):
        who, size = data[position] & 1, (data[position] >> 1) + 1
        piece = data[position + 1 : position + 1 + size]
        position += 1 + size
        now_ms += 7
        carry_out(broker.receive(connections[who], piece, now_ms))
        if broker.has_work():
            carry_out(broker.work(now_ms))
    for connection in connections:
        carry_out(broker.lost(connection, now_ms))
    carry_out(broker.tick(now_ms + 10**9))
    assert broker.counters.connected_now == 0


def sn_decoder(data: bytes) -> None:
    detect.classify(data)
    detect.is_connect(data)
    for read, write in ((v12.decode, v12.encode), (v2_decode.decode, v2_encode.encode)):
        try:
            packet = read(data)
        except ProtocolError:
            continue
        try:
            again = write(packet)
        except HoldfastError:
            continue  # a packet that only the other side sends
        assert plain(read(again)) == plain(packet)


class Sensor(DatagramPeer):
    def write(self, data: bytes) -> None:
        assert data

    def close(self, reason: str) -> None:
        pass

    def attach(self, connection: object) -> None:
        pass

    def move(self, address: object, envelope: object) -> None:
        pass


class Air(Datagrams):
    def open(self, address: object, envelope: object) -> DatagramPeer:
        return Sensor()

    def send(self, packet: bytes, address: object, envelope: object) -> None:
        assert packet


def sn_gateway(data: bytes) -> None:
    """A length byte before each datagram; its highest bit says from which of two addresses."""
    broker = small_broker()
    carry_out(broker.publish(Publisher("", "", "api"), b"kept", b"1", 1, True, NOW_MS))
    settings = SnSettings()
    settings.predefined = {1: b"one"}
    settings.open_filters = [b"open/#"]
    gateway = Gateway(broker, settings, Air())
    position = 0
    now_ms = NOW_MS
    while position < len(data):
        host, size = f"10.0.0.{data[position] >> 7}", data[position] & 127
        datagram = data[position + 1 : position + 1 + size]
        position += 1 + size
        now_ms += 50
        carry_out(gateway.receive([(datagram, (host, 1), host)], now_ms))
        carry_out(broker.tick(now_ms))
        if broker.has_work():
            carry_out(broker.work(now_ms))
    carry_out(broker.tick(now_ms + 10**9))


def journal_reader(data: bytes) -> None:
    """First byte: whether the bytes are a whole segment, what follows a sound head, or the bodies of sound frames."""
    if not data:
        return
    rest = data[1:]
    if data[0] % 3 == 1:
        rest = encode_head(1) + rest
    elif data[0] % 3 == 2:
        rest = encode_head(1) + frame_all([part for part in rest.split(b"\xf5\x48") if len(part) >= 10], checksum)
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-", dir=MEMORY) as name:
        folder = Path(name)
        (folder / str(SegmentName(1))).write_bytes(rest)
        if data[0] & 128:
            (folder / str(SegmentName(1 + (data[0] >> 4 & 7)))).write_bytes(rest[::-1])
        reader = Reader(folder, 0, folder / "quarantine")
        found: list[bytes] = []
        last = 0
        try:
            for record in records_of(reader):
                assert len(record) >= RECORD_MIN
                assert reader.last >= last
                last = reader.last
                found.append(record)
        except StoreError as error:
            if "format" not in str(error):  # of a later version
                raise
        finally:
            reader.close()
        fold_all(folder / "state", found)


def fold_all(folder: Path, records: list[bytes]) -> None:
    """What a checksum vouches for may still be nonsense. It is left out, and the rest is folded and read back."""
    publishers = Publishers()
    for record in records:
        if record_kind(record) == PUBLISH_RECORD:
            try:
                message = decode_publish(record, publishers)
            except StoreError:
                assert not is_whole(record)
            else:
                assert message.topic == publish_topic(record)
    sound = sound_only(records)
    columns = Columns()
    columns.add_all(sound, 0)
    if not sound:
        return
    store = StateStore(folder)
    try:
        store.apply(sound)
        for stretch in store.retained.all():
            for message in stretch:
                assert store.retained.get(message.topic) is not None
        store.sessions.all()
        store.sessions.messages()
    finally:
        store.close()


def records_of(reader: Reader) -> Iterator[bytes]:
    for _ in range(1000):
        found = reader.read()
        if not found:
            return
        yield from found
    raise AssertionError("the reader does not come to an end")


def configuration(data: bytes) -> None:
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return
    merge = Merge()
    flatten(merge, document, "", "file")
    try:
        settings = Settings.model_validate(nested(merge.values))
    except ValidationError as error:
        for detail in error.errors():
            assert str(describe(detail, merge.origins))
        return
    settings.listeners()
    try:
        Access(toml_rules(settings), False).may(PUBLISH, "u", "c", [b"a"])
    except KeyError:
        # The checks that follow refuse a group that is not there.
        assert {rule.group for rule in settings.access} - {group.name for group in settings.auth.group}


def listener_url(data: bytes) -> None:
    try:
        url = parse_listener(data.decode())
    except ValueError:
        return
    assert 0 <= url.port <= 65535
    assert url.host


def access_file(data: bytes) -> None:
    """The first line is a topic; the rest is the file."""
    try:
        topic, _, text = data.decode().partition("\n")
    except UnicodeDecodeError:
        return
    levels = topic.encode().split(b"/")
    try:
        rules = parse_access(text, "access")
    except ConfigError as error:
        if "access, line " not in str(error):
            raise AssertionError("the error does not name the line") from error
        return
    access = Access(rules, False, True)
    names = ("", "u", "+", "#", "a/b", topic)
    for name in names:
        for action in (PUBLISH, RECEIVE, RETAIN, SUBSCRIBE):
            access.may(action, name, name, levels)
    # Nothing is ever granted that no line grants.
    if not any(rule.allow for rule in rules):
        for action in (PUBLISH, RECEIVE, RETAIN):
            assert not any(access.may(action, name, name, levels) for name in names)


def password_hash(data: bytes) -> None:
    text = data.decode(errors="replace")
    is_known(text)
    verifier = parse_verifier(text)
    assert verifier is None or parse_verifier(str(verifier)) == verifier


LOOKUP = Lookup({"user": derive(b"pencil", b"salt", 1)}, b"seed")


def scram_exchange(data: bytes) -> None:
    """Nobody gets in without the password, whatever they say."""
    first, _, final = data.partition(b"\n")
    exchange = ScramExchange(LOOKUP, "nonce")
    try:
        exchange.first(first)
        exchange.final(final.replace(b"NONCE", exchange.nonce.encode()))
    except ValueError:
        return
    raise AssertionError("a proof was found")


def proxy_header(data: bytes) -> None:
    try:
        header = parse_header(data)
    except ValueError:
        return
    if header is not None:
        assert 0 < header.size <= len(data)
        assert parse_header(data[: header.size]) == header
        assert 0 <= header.port <= 65535


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        mqtt_decoder,
        mqtt_broker,
        sn_decoder,
        sn_gateway,
        journal_reader,
        configuration,
        listener_url,
        access_file,
        password_hash,
        scram_exchange,
        proxy_header,
    )
}
