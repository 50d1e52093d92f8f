"""One broker with every transport, for the tests with real clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker_process import MOSQUITTO, BrokerProcess, start_holdfast, under_test
from certificates import Authority

TRANSPORTS = ("tcp", "tls", "ws", "wss")
VERSIONS = ("3.1.1", "5.0")


@dataclass
class Everywhere:
    """The broker, its certificates, and where each transport listens."""

    broker: BrokerProcess
    authority: Authority
    client_certificate: tuple[Path, Path]

    @property
    def ca(self) -> str:
        return str(self.authority.ca)

    def port(self, transport: str) -> int:
        return self.broker.ports[transport]

    def url(self, transport: str) -> str:
        """For clients that take URLs."""
        scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(transport, transport)
        path = "/mqtt" if transport in ("ws", "wss") else ""
        return f"{scheme}://localhost:{self.port(transport)}{path}"


@pytest.fixture(scope="session")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everywhere]:
    if under_test() == MOSQUITTO:
        pytest.skip("needs a broker with Holdfast's listeners")
    folder = tmp_path_factory.mktemp("everywhere")
    authority = Authority(folder / "certificates")
    certificate, key = authority.issue("localhost", "server")
    settings = {"tls.cert": certificate, "tls.key": key}
    running = start_holdfast(
        folder / "data", settings, listen=[f"{transport}://127.0.0.1:0" for transport in TRANSPORTS]
    )
    yield Everywhere(running, authority, authority.issue("client", "client"))
    running.stop()
    assert "Traceback" not in running.output, running.output
