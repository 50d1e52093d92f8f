"""TLS: who is let in, and who the broker proves to be."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import MOSQUITTO, BrokerProcess, Unique, start_holdfast, under_test
from certificates import Authority
from command_line import holdfast_process
from wire import Publish, WireClient

CONFIG = """
[auth]
no_match = "deny"

[[access]]
permission = "allow"
action = "all"
filter = "%u/#"
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def guarded(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Asks for client certificates, and lets each client use only the topics below its own name."""
    if under_test() == MOSQUITTO:
        pytest.skip("needs a broker with Holdfast's listeners")
    folder = tmp_path_factory.mktemp("guarded")
    certificate, key = authority.issue("localhost", "server")
    config = folder / "holdfast.toml"
    config.write_text(CONFIG)
    settings = {
        "tls.cert": certificate,
        "tls.key": key,
        "tls.ca": authority.ca,
        "tls.require_client_certificate": True,
        "tls.min_version": "1.3",
    }
    running = start_holdfast(
        folder / "data", settings, listen=["tls://127.0.0.1:0", "wss://127.0.0.1:0"], args=["--config", str(config)]
    )
    yield running
    running.stop()
    assert "Traceback" not in running.output, running.output


def secure(broker: BrokerProcess, context: ssl.SSLContext, version: int = 4) -> WireClient:
    raw = socket.create_connection(("127.0.0.1", broker.ports["tls"]), 5)
    try:
        return WireClient(0, version, sock=context.wrap_socket(raw, server_hostname="localhost"))
    except ssl.SSLError:
        raw.close()
        raise


def refused(broker: BrokerProcess, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 the server's refusal shows at the first read, not in the handshake."""
    try:
        with secure(broker, context) as client:
            client.connect("refused")
    except (ssl.SSLError, ConnectionError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("version", [4, 5])
def test_client_with_a_certificate_is_let_in(version: int, guarded: BrokerProcess, authority: Authority) -> None:
    context = authority.trusting(authority.issue("alice", "client"))
    with secure(guarded, context, version) as client:
        client.connect("c1")
        client.subscribe("alice/x", qos=1)
        client.publish("alice/x", b"mine", qos=1)
        client.expect(Publish, payload=b"mine")


def test_name_in_the_certificate_is_the_user_name(guarded: BrokerProcess, authority: Authority) -> None:
    with secure(guarded, authority.trusting(authority.issue("bob", "client"))) as client:
        client.connect("c2")
        assert client.subscribe("bob/#", "alice/#", check=False).codes == [0, 0x80]


def test_client_without_a_certificate_is_refused(guarded: BrokerProcess, authority: Authority) -> None:
    assert refused(guarded, authority.trusting())


def test_the_command_line_suspects_a_missing_certificate_where_tls_ends_without_a_word(
    guarded: BrokerProcess, authority: Authority
) -> None:
    url = f"mqtts://localhost:{guarded.ports['tls']}/localhost/t"
    done = holdfast_process("pub", "-L", url, "--cafile", str(authority.ca), "-m", "x")
    assert done.returncode == 1
    assert "does it want a client certificate (--cert, --key)?" in done.stderr


def test_certificate_of_another_authority_is_refused(
    guarded: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other", "Other CA").issue("mallory", "client")
    assert refused(guarded, authority.trusting(stranger))


def test_older_tls_than_allowed_is_refused(guarded: BrokerProcess, authority: Authority) -> None:
    context = authority.trusting(authority.issue("old", "client"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(guarded, context)


def test_client_that_trusts_another_authority_does_not_trust_the_broker(guarded: BrokerProcess, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    with pytest.raises(ssl.SSLCertVerificationError):
        secure(guarded, other.trusting())


def test_plain_mqtt_on_the_tls_port_is_closed_and_costs_others_nothing(
    guarded: BrokerProcess, authority: Authority, unique: Unique
) -> None:
    with secure(guarded, authority.trusting(authority.issue("carol", "client"))) as steady:
        steady.connect(unique.client())
        for data in (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(300)):
            with socket.create_connection(("127.0.0.1", guarded.ports["tls"]), 5) as plain:
                plain.sendall(data)
                answer = b"start"
                while answer:
                    try:
                        answer = plain.recv(4096)
                    except ConnectionResetError:
                        break
                    assert not answer.startswith(b"\x20"), "CONNACK in the clear"
        steady.ping()


def test_large_messages_pass_tls(guarded: BrokerProcess, authority: Authority, unique: Unique) -> None:
    with secure(guarded, authority.trusting(authority.issue("dave", "client"))) as client:
        client.connect(unique.client())
        client.subscribe("dave/big", qos=1)
        payload = bytes(range(256)) * 8192
        client.publish("dave/big", payload, qos=1)
        (message,) = client.messages(1)
        assert message.payload == payload
