"""Fixtures for every room of the suite; each is defined beside what it starts."""

from broker_process import broker, connect, open_client, start_broker, unique

__all__ = ["broker", "connect", "open_client", "start_broker", "unique"]
