"""What no single key shows: settings that are each fine and do not go together.

A configuration that names a file which is not there, or that would let strangers in without saying so, is refused.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config.listener import Listener
from holdfast.config.problem import Problem
from holdfast.config.settings import Settings


def problems_of(settings: Settings, origins: Mapping[str, str]) -> list[Problem]:
    found = [*_listeners(settings), *_files(settings), *_quantities(settings)]
    return [Problem(p.key, p.message, origins.get(p.key, "")) for p in found]


def _listeners(settings: Settings) -> Iterator[Problem]:
    taken: set[tuple[bool, str, int]] = set()
    for listener in settings.listeners():
        place = (listener.scheme == "udp", listener.host, listener.port)
        if listener.port and place in taken:
            yield Problem("listen", f"{listener.url} is on an address that is already in the list, expected each once")
        taken.add(place)
        yield from _tls(listener)
        if not _is_guarded(settings, listener):
            yield Problem(
                "listen",
                f"{listener.url} can be reached from other machines and asks nobody to log in, expected "
                "auth.password_file, client certificates, or auth.allow_anonymous = true to open it to everyone",
            )


def _tls(listener: Listener) -> Iterator[Problem]:
    if not listener.is_tls:
        return
    if listener.cert is None or listener.key is None:
        missing = "tls.cert" if listener.cert is None else "tls.key"
        yield Problem("listen", f"{listener.url} needs a certificate and its key, expected {missing}, got none")
    if listener.require_client_certificate and listener.ca is None:
        yield Problem("listen", f"{listener.url} requires client certificates, expected tls.ca to check them, got none")


def _is_guarded(settings: Settings, listener: Listener) -> bool:
    """Open on purpose, not reachable, or with some way to tell who it is."""
    return (
        listener.allow_anonymous
        or listener.is_loopback
        or settings.auth.password_file is not None
        or (listener.scheme in ("http", "https") and settings.api.key_file is not None)
        or listener.require_client_certificate
    )


def _files(settings: Settings) -> Iterator[Problem]:
    named: list[tuple[str, Path | None]] = [
        ("tls.cert", settings.tls.cert),
        ("tls.key", settings.tls.key),
        ("tls.ca", settings.tls.ca),
        ("auth.password_file", settings.auth.password_file),
        ("api.key_file", settings.api.key_file),
    ]
    known = {path for _, path in named}
    for listener in settings.listeners():
        named += [("listen", path) for path in (listener.cert, listener.key, listener.ca) if path not in known]
    for key, path in named:
        if path is None:
            continue
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            yield Problem(key, f"cannot read {path}: {(error.strerror or str(error)).lower()}")
    if settings.data.exists() and not settings.data.is_dir():
        yield Problem("data", f"expected a folder, got the file {settings.data}")


def _quantities(settings: Settings) -> Iterator[Problem]:
    limits = settings.limits
    if limits.connect_timeout == 0:
        yield Problem("limits.connect_timeout", "expected more than 0: a silent connection would stay for ever")
    sn = settings.sn
    for name in ("retry_interval", "response_timeout", "backoff", "advertise_interval"):
        if getattr(sn, name) == 0:
            yield Problem(f"sn.{name}", "expected more than 0")
    numbers = [entry.id for entry in sn.predefined]
    topics = [entry.topic for entry in sn.predefined]
    if len(set(numbers)) < len(numbers) or len(set(topics)) < len(topics):
        yield Problem("sn.predefined", "expected each number and each topic once")
    if settings.history.flush_interval == 0:
        yield Problem("history.flush_interval", "expected more than 0")
