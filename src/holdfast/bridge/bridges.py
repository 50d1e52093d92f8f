"""All bridges of a broker: those of the configuration, and those that were made while it runs. Each is started, stopped
and changed without touching the others.
"""

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from holdfast.bridge.options import BridgeOptions
from holdfast.broker.system import SYSTEM
from holdfast.errors import HoldfastError, NotFound, StoreError, UsageError
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver

if TYPE_CHECKING:
    from holdfast.bridge.link import Link

log = logging.getLogger("holdfast.bridge")

CONFIGURATION: Final = "configuration"
API: Final = "api"
RESTART_S: Final = 5.0
STOP_S: Final = 2.0


@dataclass
class Running:
    link: "Link"
    origin: str


class Bridges:
    """`folder` is where they remember; None where nothing outlives the process. `parse` makes options of a table as the
    configuration has it, and raises UsageError.
    """

    def __init__(self, driver: Driver, folder: Path | None, parse: Callable[[dict[str, Any]], BridgeOptions]) -> None:
        self.driver = driver
        self.folder = folder
        self.parse = parse
        self.policy = ListenerPolicy(allow_anonymous=True)
        self.running: dict[str, Running] = {}
        self.made: dict[str, dict[str, Any]] = {}  # through the API, as they were told
        self.broker_id = ""
        self.changing = asyncio.Lock()
        self.watcher: asyncio.Task[None] | None = None

    async def start(self, configured: list[BridgeOptions]) -> None:
        self.broker_id = self.read_id()
        self.made = self.read_made()
        await self.apply(configured)

    async def stop(self) -> None:
        if self.watcher is not None:
            self.watcher.cancel()
        async with self.changing:
            ending = [asyncio.ensure_future(one.link.stop()) for one in self.running.values()]
            self.running.clear()
            if ending:  # the other side may be slow to go, and nobody waits for it
                await asyncio.wait(ending, timeout=STOP_S)

    async def apply(self, configured: list[BridgeOptions]) -> None:
        """Have these, and those made through the API, and no others."""
        wanted = {options.name: (options, CONFIGURATION) for options in configured}
        for name, told in list(self.made.items()):
            if name in wanted:
                log.warning("a bridge made through the API gives way to the configuration", extra={"bridge": name})
                continue
            try:
                wanted[name] = (self.parse(told), API)
            except UsageError as error:
                log.error("a bridge made through the API cannot be used", extra={"bridge": name, "error": str(error)})
        async with self.changing:
            for name in [name for name in self.running if name not in wanted]:
                await self.end(name, forget=True)
            for options, origin in wanted.values():
                await self.have(options, origin)

    async def have(self, options: BridgeOptions, origin: str) -> None:
        """One bridge as told. One that is the same goes on undisturbed."""
        # a client and a database, for a broker that has bridges
        from holdfast.bridge.link import ID_TOPIC, Link
        from holdfast.bridge.memory import Memory

        old = self.running.get(options.name)
        if old is not None:
            if old.link.options == options:
                old.origin = origin
                return
            # What waits belongs to the session: it is kept if the new one has the same.
            await self.end(options.name, forget=old.link.options.local_client_id != options.local_client_id)
        taken = [one.link.options.name for one in self.running.values() if clashes(one.link.options, options)]
        if taken:
            log.error("a bridge has the client id of another", extra={"bridge": options.name, "other": taken[0]})
        if not self.running:
            self.driver.publish(SYSTEM, ID_TOPIC, self.broker_id.encode(), 0, True)
        link = Link(
            options, self.driver, self.policy, Memory(self.path_of(options.name), options.remember), self.broker_id
        )
        self.running[options.name] = Running(link, origin)
        link.start()
        if self.watcher is None:
            self.watcher = self.driver.loop.create_task(self.watch(), name="bridges")

    async def end(self, name: str, forget: bool) -> None:
        await self.running.pop(name).link.stop(forget)

    async def watch(self) -> None:
        """Begin anew what has failed for a reason that nobody foresaw."""
        while True:
            await asyncio.sleep(RESTART_S)
            for name, one in list(self.running.items()):
                if one.link.has_died:
                    async with self.changing:
                        if self.running.get(name) is one:
                            await self.end(name, forget=False)
                            await self.have(one.link.options, one.origin)

    # What people ask.

    def status(self) -> list[dict[str, Any]]:
        return [{**one.link.status(), "origin": one.origin} for _, one in sorted(self.running.items())]

    def told(self, name: str) -> dict[str, Any]:
        return dict(self.find(name).link.options.told)

    def find(self, name: str) -> Running:
        if name not in self.running:
            raise NotFound(f"no bridge is called {name!r}; there are: {', '.join(sorted(self.running)) or 'none'}")
        return self.running[name]

    async def add(self, told: dict[str, Any], replace: bool = False) -> dict[str, Any]:
        """Make a bridge, or change one; it is there after a restart. Raises UsageError."""
        told, password = self.split_password(told)
        options = self.parse(told)
        there = self.running.get(options.name)
        if there is not None and there.origin == CONFIGURATION:
            raise UsageError(f"bridge {options.name!r} is in the configuration: change it there, and send SIGHUP")
        if there is not None and not replace:
            raise UsageError(f"a bridge {options.name!r} is there already; replace it, or choose another name")
        for one in self.running.values():
            if one.link.options.name != options.name and clashes(one.link.options, options):
                raise UsageError(f"bridge {one.link.options.name!r} has the same client id, expected another one")
        if password is not None:
            options = self.parse({**told, "password_file": str(self.write_password(options.name, password))})
        self.made[options.name] = options.told
        self.write_made()
        async with self.changing:
            await self.have(options, API)
        return {**self.running[options.name].link.status(), "origin": API}

    async def remove(self, name: str) -> None:
        """End a bridge, and forget what waits for the other side. Raises NotFound, or UsageError."""
        if self.find(name).origin == CONFIGURATION:
            raise UsageError(f"bridge {name!r} is in the configuration: remove it there, and send SIGHUP")
        self.made.pop(name, None)
        self.write_made()
        async with self.changing:
            if name in self.running:
                await self.end(name, forget=True)
        if self.folder is not None:
            (self.folder / f"{quote(name, safe='')}.password").unlink(missing_ok=True)

    async def test(self, told: dict[str, Any]) -> list[dict[str, object]]:
        """Whether a bridge as told would be let in, address by address."""
        from holdfast.bridge.remote import try_out

        told, password = self.split_password(told)
        options = self.parse(told)
        return await try_out(options if password is None else replace(options, given_password=password.encode()))

    def split_password(self, told: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """What was told, and the password in it. Who may make bridges may not have other files sent to strangers as
        passwords: only those of the broker's own folder can be named.
        """
        told = dict(told)
        password = told.pop("password", None)
        if password is not None and not isinstance(password, str):
            raise UsageError("expected a text as password")
        named = told.get("password_file")
        if named is not None and (self.folder is None or Path(str(named)).parent.resolve() != self.folder.resolve()):
            raise UsageError(
                f"expected password instead of password_file, or a file in {self.folder}: others can be named in the "
                "configuration only"
            )
        return told, password

    # What is kept.

    def path_of(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{quote(name, safe='')}.sqlite3"

    def read_id(self) -> str:
        """Which broker this is, to those who bridge to it: a name that nobody else has."""
        path = None if self.folder is None else self.folder / "id"
        try:
            if path is not None and path.exists():
                return path.read_text().strip()
            fresh = secrets.token_hex(8)
            if path is not None:
                write_private(path, f"{fresh}\n")
            return fresh
        except OSError as error:
            raise StoreError(f"cannot use {path}: {error}") from error

    def read_made(self) -> dict[str, dict[str, Any]]:
        if self.folder is None or not (path := self.folder / "made.json").exists():
            return {}
        try:
            return {str(one["name"]): one for one in json.loads(path.read_text())}
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.error("bridges made through the API cannot be read", extra={"file": str(path), "error": str(error)})
            return {}

    def write_password(self, name: str, password: str) -> Path:
        """Where a password is kept, for the broker's user alone. Whoever replaces it there has changed it: it is read
        at each connect.
        """
        if self.folder is None:
            raise UsageError("nothing is kept here (retainer.storage_type is ram): name a file in the configuration")
        path = self.folder / f"{quote(name, safe='')}.password"
        try:
            write_private(path, f"{password}\n")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}") from error
        return path

    def write_made(self) -> None:
        if self.folder is None:
            return
        path = self.folder / "made.json"
        try:
            write_private(path, json.dumps(list(self.made.values()), indent=2, default=str))
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}") from error


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that is whole, and the broker's alone: no link that stands there is followed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)


def clashes(one: BridgeOptions, other: BridgeOptions) -> bool:
    return one.local_client_id == other.local_client_id


async def start_bridges(bridges: Bridges, configured: list[BridgeOptions]) -> None:
    """What keeps bridges from working keeps nobody else from it."""
    try:
        await bridges.start(configured)
    except HoldfastError as error:
        log.error("bridges cannot be started", extra={"error": str(error)})
