"""A broker with an HTTP listener, shared by the tests of a worker, and a client for its API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_process import MOSQUITTO, BrokerProcess, start_holdfast, under_test
from http_api import LISTEN, Api


@pytest.fixture(scope="session")
def http_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if under_test() == MOSQUITTO:
        pytest.skip("about Holdfast's API")
    running = start_holdfast(tmp_path_factory.mktemp("api"), {"history.record": "all"}, listen=LISTEN)
    yield running
    assert "Traceback" not in running.output, running.output
    running.stop()


@pytest.fixture
def api(http_broker: BrokerProcess) -> Iterator[Api]:
    with Api(http_broker) as client:
        yield client
