"""Certificates that are taken away: neither a resumed session nor an old connection gets past that."""

import http.client
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import wire
from broker_process import BrokerProcess
from certificates import Authority
from http_api import until
from wire import ConnAck, WireClient

Start = Callable[..., BrokerProcess]
Pair = tuple[Path, Path]

PATIENCE_S = 60.0
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Lists:
    """The revocation list of an authority, by the openssl command. `dated` makes lists of one and the same second."""

    def __init__(self, authority: Authority, dated: str = "") -> None:
        self.authority = authority
        folder = self.folder = authority.folder
        self.path = folder / "crl.pem"
        self.dates = ["-crl_lastupdate", dated, "-crl_nextupdate", "20991231235959Z"] if dated else []
        (folder / "index.txt").touch()
        (folder / "ca.cnf").write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index.txt\ndefault_md=sha256\ndefault_crl_days=2\n"
        )
        self.write()

    def write(self, *revoked: Path) -> Path:
        files = ["-keyfile", str(self.folder / "ca.key"), "-cert", str(self.authority.ca)]
        base = ["openssl", "ca", "-config", str(self.folder / "ca.cnf"), *files]
        for certificate in revoked:
            subprocess.run([*base, "-revoke", str(certificate)], check=True, capture_output=True)
        subprocess.run([*base, "-gencrl", *self.dates, "-out", str(self.path)], check=True, capture_output=True)
        return self.path


class Client:
    """A client that keeps its TLS session, as many libraries do."""

    def __init__(self, broker: BrokerProcess, authority: Authority, pair: Pair, version: ssl.TLSVersion) -> None:
        self.broker = broker
        self.context = authority.trusting(pair)
        self.context.minimum_version = self.context.maximum_version = version
        self.session: ssl.SSLSession | None = None
        self.resumed = False

    def open(self) -> WireClient:
        raw = socket.create_connection(("127.0.0.1", self.broker.ports["tls"]), PATIENCE_S)
        sock = self.context.wrap_socket(raw, server_hostname="localhost", session=self.session)
        return WireClient(0, 5, sock=sock)

    def gets_in(self) -> bool:
        """With TLS 1.3 a refused client learns of it when it first reads."""
        try:
            with self.open() as client:
                client.send(wire.connect("t", version=5))
                code = client.expect(ConnAck, timeout=PATIENCE_S).code
                assert isinstance(client.sock, ssl.SSLSocket)
                self.resumed = bool(client.sock.session_reused)
                self.session = client.sock.session
                return code == 0
        except (OSError, AssertionError):
            return False


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def serve(
    start_broker: Start, authority: Authority, ca: Path, crl: Path | None = None, scheme: str = "tls"
) -> BrokerProcess:
    cert, key = authority.issue("localhost", "server")
    settings = {"tls__cert": cert, "tls__key": key, "tls__ca": ca, "history__enable": False}
    if crl is not None:
        settings["tls__crl"] = crl
    return start_broker(listen=[f"{scheme}://127.0.0.1:0?require_client_certificate=true"], **settings)


def reload(broker: BrokerProcess) -> None:
    before = broker.output.count("reloaded certificates")
    broker.signal(signal.SIGHUP)
    until(lambda: broker.output.count("reloaded certificates"), lambda count: count > before, PATIENCE_S)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_resumed_session_does_not_outlive_a_revocation(
    start_broker: Start, authority: Authority, version: ssl.TLSVersion
) -> None:
    good, bad = authority.issue("good", "client"), authority.issue("bad", "client")
    lists = Lists(authority)
    broker = serve(start_broker, authority, authority.ca, lists.path)
    mallory, alice = (Client(broker, authority, pair, version) for pair in (bad, good))
    for client in (mallory, alice):
        assert client.gets_in()
        # TLS 1.2 may resume, or this would show nothing; a server forgets a session whose connection ended badly.
        assert any(client.gets_in() and client.resumed for _ in range(30)) is (version == ssl.TLSVersion.TLSv1_2)
    lists.write(bad[0])
    reload(broker)
    assert not mallory.gets_in()
    assert alice.gets_in()


def test_of_two_lists_with_one_date_the_one_in_the_file_counts(start_broker: Start, authority: Authority) -> None:
    bad = authority.issue("bad", "client")
    lists = Lists(authority, "20250101000000Z")
    broker = serve(start_broker, authority, authority.ca, lists.path)
    mallory = Client(broker, authority, bad, ssl.TLSVersion.TLSv1_3)
    assert mallory.gets_in()
    lists.write(bad[0])
    reload(broker)
    assert not mallory.gets_in()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_an_authority_that_is_taken_out_is_not_trusted_any_more(
    start_broker: Start, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    both = tmp_path / "both.pem"
    both.write_text(authority.ca.read_text() + other.ca.read_text())
    broker = serve(start_broker, authority, both)
    eve = Client(broker, authority, other.issue("eve", "client"), version)
    alice = Client(broker, authority, authority.issue("alice", "client"), version)
    assert eve.gets_in()
    with eve.open() as inside:
        inside.connect("inside")
        both.write_text(authority.ca.read_text())
        reload(broker)
        inside.expect_disconnect(0x87, PATIENCE_S)
    assert not eve.gets_in()
    assert alice.gets_in()


def test_who_is_connected_with_a_certificate_that_is_revoked_has_to_leave(
    start_broker: Start, authority: Authority
) -> None:
    lists = Lists(authority)
    good, bad = authority.issue("good", "client"), authority.issue("bad", "client")
    broker = serve(start_broker, authority, authority.ca, lists.path)
    with (
        Client(broker, authority, good, ssl.TLSVersion.TLSv1_3).open() as stays,
        Client(broker, authority, bad, ssl.TLSVersion.TLSv1_3).open() as leaves,
    ):
        stays.connect("stays")
        leaves.connect("leaves")
        lists.write(bad[0])
        reload(broker)
        leaves.expect_disconnect(0x87, PATIENCE_S)
        stays.ping()


def test_a_resumed_session_does_not_outlive_its_certificate(start_broker: Start, authority: Authority) -> None:
    pair = authority.issue("brief", "client")
    broker = serve(start_broker, authority, authority.ca)
    ends = shorten(authority, pair, 10)
    client = Client(broker, authority, pair, ssl.TLSVersion.TLSv1_2)
    assert client.gets_in()
    until(time.time, lambda now: now > ends + 1, PATIENCE_S)
    assert not client.gets_in()


def shorten(authority: Authority, pair: Pair, seconds: int) -> float:
    """Sign a certificate again, for a few seconds from now; returns when it ends."""
    before = x509.load_pem_x509_certificate(pair[0].read_bytes())
    key = serialization.load_pem_private_key((authority.folder / "ca.key").read_bytes(), None)
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    builder = x509.CertificateBuilder(before.issuer, before.subject, before.public_key(), before.serial_number)
    again = builder.not_valid_before(before.not_valid_before_utc).not_valid_after(ends)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    pair[0].write_bytes(again.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return ends.timestamp()


def test_a_list_that_cannot_be_read_leaves_the_old_one_in_force(start_broker: Start, authority: Authority) -> None:
    bad = authority.issue("bad", "client")
    lists = Lists(authority)
    lists.write(bad[0])
    broker = serve(start_broker, authority, authority.ca, lists.path)
    mallory = Client(broker, authority, bad, ssl.TLSVersion.TLSv1_3)
    assert not mallory.gets_in()
    lists.path.write_text("nothing of the kind\n")
    broker.signal(signal.SIGHUP)
    broker.wait_output("reload failed, nothing was changed", PATIENCE_S)
    assert not mallory.gets_in()
    broker.wait_output("expected a revocation list", PATIENCE_S)


# The API behind `https://`.


class Browser:
    """Keeps its TLS session, and its connection if it is told to."""

    def __init__(self, broker: BrokerProcess, authority: Authority, pair: Pair, version: ssl.TLSVersion) -> None:
        self.broker = broker
        self.context = authority.trusting(pair)
        self.context.minimum_version = self.context.maximum_version = version
        self.session: ssl.SSLSession | None = None

    def open(self) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.broker.ports["https"]), PATIENCE_S)
        return self.context.wrap_socket(raw, server_hostname="localhost", session=self.session)

    def ask(self, sock: ssl.SSLSocket) -> bool:
        """Whether a request is answered at all, with success."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = sock
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        self.session = sock.session
        return answer.status == 200

    def gets_in(self) -> bool:
        try:
            with self.open() as sock:
                return self.ask(sock)
        except OSError:
            return False


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_revoked_certificate_gets_nowhere_over_https(
    start_broker: Start, authority: Authority, version: ssl.TLSVersion
) -> None:
    pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")
    good, bad = authority.issue("good", "client"), authority.issue("bad", "client")
    lists = Lists(authority)
    broker = serve(start_broker, authority, authority.ca, lists.path, "https")
    mallory, alice = (Browser(broker, authority, pair, version) for pair in (bad, good))
    assert mallory.gets_in()
    with mallory.open() as revoked, alice.open() as kept:
        assert mallory.ask(revoked)
        assert alice.ask(kept)
        lists.write(bad[0])
        reload(broker)
        assert not mallory.ask(revoked), "a connection that was open"
        assert alice.ask(kept)
    assert not mallory.gets_in(), "a session that could be resumed"
    mallory.session = None
    assert not mallory.gets_in()
    assert alice.gets_in()


def test_a_certificate_that_has_ended_resumes_nothing_over_https(start_broker: Start, authority: Authority) -> None:
    pytest.importorskip("fastapi", reason="the API comes with holdfast-mqtt[ui], which is not installed")
    pair = authority.issue("brief", "client")
    broker = serve(start_broker, authority, authority.ca, scheme="https")
    ends = shorten(authority, pair, 10)
    client = Browser(broker, authority, pair, ssl.TLSVersion.TLSv1_2)
    assert client.gets_in()
    until(time.time, lambda now: now > ends + 1, PATIENCE_S)
    assert not client.gets_in()
    broker.signal(signal.SIGHUP)
    broker.wait_output("reloaded certificates", PATIENCE_S)
    assert not client.gets_in()
