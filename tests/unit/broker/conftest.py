"""Brokers for tests of single rules: the core in this process, once without and once with something to make durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core_broker import CoreBroker


@pytest.fixture(params=["ram", "disc"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., CoreBroker]]:
    """Make a broker with these settings, e.g. `start(limits__max_inflight=1)`."""
    made: list[CoreBroker] = []

    def make(**settings: Any) -> CoreBroker:
        made.append(CoreBroker(**{"retainer__storage_type": request.param, **settings}))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(start: Callable[..., CoreBroker]) -> CoreBroker:
    """A broker with default settings."""
    return start()
