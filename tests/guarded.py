"""Brokers with users and rules, for the tests about security: a configuration in a file that a test can change."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker_process import BrokerProcess, start_holdfast
from password_file import write_password_file
from wire import WireClient

USERS = {"owner": "owner's", "guest": "guest's", "ann": "ann's", "bob": "bob's"}


class Guarded:
    """A broker whose users have the passwords of USERS, and whose rules are an access file in mosquitto's format."""

    def __init__(
        self, folder: Path, rules: str | None, extra: str = "", listen: Sequence[str] = ("tcp://127.0.0.1:0",)
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        write_password_file(folder / "users", USERS)
        self.rules = folder / "access"
        self.config = folder / "holdfast.toml"
        auth = f'[auth]\npassword_file = "{folder / "users"}"\n'
        if rules is not None:
            self.rules.write_text(rules)
            auth += f'access_file = "{self.rules}"\n'
        self.config.write_text(f"{auth}{extra}")
        self.broker: BrokerProcess = start_holdfast(
            folder / "data", {"history.enable": False}, listen=listen, args=["--config", str(self.config)]
        )
        self._clients: list[WireClient] = []

    def enter(self, user: str = "owner", client_id: str = "", version: int = 5, **fields: Any) -> WireClient:
        client = self.open(version)
        client.connect(client_id or f"{user}{len(self._clients)}", **login(user), **fields)
        return client

    def open(self, version: int = 5) -> WireClient:
        """A connection on which nothing has been sent yet."""
        self._clients.append(WireClient(self.broker.port, version))
        return self._clients[-1]

    def change(self, rules: str) -> None:
        """New rules, in force when this returns."""
        self.rules.write_text(rules)
        self.reload("reloaded certificates")

    def reload(self, expected: str) -> None:
        before = self.broker.output.count(expected)
        self.broker.signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while self.broker.output.count(expected) == before:
            if time.monotonic() > deadline:
                raise AssertionError(f"expected another {expected!r} in the output, got:\n{self.broker.output}")
            time.sleep(0.02)

    def stop(self) -> None:
        for client in self._clients:
            client.cut()
        self.broker.stop()
        assert "Traceback" not in self.broker.output, self.broker.output


def login(user: str) -> Mapping[str, Any]:
    return {"username": user, "password": USERS[user].encode()}
