"""What no single key shows: settings that are each fine and do not go together.

A configuration that names a file which is not there, or that would let strangers in without saying so, is refused.
"""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config.listener import Listener
from holdfast.config.settings import Bridge, Settings
from holdfast.problem import Problem, shown

HTTP_SCHEMES = ("http", "https")
NODE_NAME_LONGEST = 64
LEAST_FILE = 1 << 20


def problems_of(settings: Settings, origins: Mapping[str, str]) -> list[Problem]:
    """Returns what is wrong with settings that are each valid, with where each came from."""
    found = [
        *_listeners(settings),
        *_files(settings),
        *_rights(settings),
        *_quantities(settings),
        *_cluster(settings),
        *_bridges(settings),
    ]
    return [Problem(p.key, p.message, origins.get(p.key, "")) for p in found]


def _cluster(settings: Settings) -> Iterator[Problem]:
    cluster = settings.cluster
    if not cluster.url:
        if cluster.node:
            yield Problem("cluster.node", "a node name is set but no log servers, expected cluster.url too")
        return
    if not cluster.node:
        yield Problem("cluster.node", "expected a unique name for this node, such as a")
    elif not cluster.node.replace("-", "").replace("_", "").isalnum():
        yield Problem("cluster.node", f"got {shown(cluster.node)}, expected letters, digits, - and _")
    elif len(cluster.node.encode()) > NODE_NAME_LONGEST:
        yield Problem("cluster.node", f"got {len(cluster.node)} characters, expected at most {NODE_NAME_LONGEST}")
    if settings.retainer.storage_type == "ram":
        yield Problem(
            "retainer.storage_type", 'got "ram", expected "disc" or "disc_only": a node must know what it has read'
        )


def _bridges(settings: Settings) -> Iterator[Problem]:
    names = [bridge.name for bridge in settings.bridge]
    if len(set(names)) < len(names):
        yield Problem("bridge", f"expected each name once, got {shown(names)}")
    for bridge in settings.bridge:
        for problem in bridge_problems(bridge):
            yield Problem("bridge", f"{bridge.name}: {problem}")


def bridge_problems(bridge: Bridge) -> Iterator[str]:
    """Returns what is wrong with one bridge."""
    for path in (bridge.password_file, bridge.ca, bridge.cert, bridge.key):
        if path is not None:
            try:
                with path.open("rb"):
                    pass
            except OSError as error:
                yield f"cannot read {path}: {(error.strerror or str(error)).lower()}"
    if bridge.password_file is not None and not bridge.username and bridge.protocol != "5":
        yield "expected a username with password_file: MQTT 3.1.1 has no password alone"
    if (bridge.cert is None) != (bridge.key is None):
        yield "expected cert and key, or neither"
    state_topic = bridge.notification_topic or bridge.client_id
    if bridge.notifications and any(character in state_topic for character in "+#\0"):
        key = (
            "notification_topic" if bridge.notification_topic else "client_id, which is part of the notification topic,"
        )
        yield f"expected {key} without wildcards, got {shown(state_topic)}"
    if bridge.quiet <= 0:
        yield "expected quiet above 0"
    if bridge.retry <= 0 or bridge.retry_max < bridge.retry:
        yield "expected retry above 0, and retry_max no less than that"


def _listeners(settings: Settings) -> Iterator[Problem]:
    taken: set[tuple[bool, str, int]] = set()
    for listener in settings.listeners():
        address = (listener.scheme == "udp", listener.host, listener.port)
        if listener.port and address in taken:
            yield Problem(
                "listen", f"{listener.url} uses an address that is already in the list, expected each only once"
            )
        taken.add(address)
        yield from _tls(listener)
        if not _is_guarded(settings, listener):
            expected = (
                "api.key_file or auth.password_file, without which the API answers this machine only"
                if listener.scheme in HTTP_SCHEMES
                else "auth.password_file or another way to log in, client certificates, or auth.allow_anonymous = true "
                "to open it to everyone"
            )
            yield Problem(
                "listen",
                f"{listener.url} can be reached from other machines and requires no login, expected {expected}",
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
        or settings.has_logins
        or (listener.scheme in HTTP_SCHEMES and settings.api.key_file is not None)
        or listener.require_client_certificate
    )


def unanswered(settings: Settings) -> Iterator[tuple[str, str]]:
    """What makes the API and the dashboard answer fewer people than one may think, with the key that changes it."""
    listeners = [listener for listener in settings.listeners() if listener.scheme in HTTP_SCHEMES]
    has_keys = settings.api.key_file is not None
    if listeners and settings.auth.password_file is not None and not settings.api.admins and not has_keys:
        yield (
            "api.admins",
            "nobody has full access to the dashboard: name an administrator among the users of auth.password_file",
        )
    if settings.auth.password_file is not None or has_keys:
        return
    for listener in listeners:
        if not listener.is_loopback:
            yield (
                "listen",
                f"{listener.url} can be reached from other machines, but the API and the dashboard answer this machine "
                "only until there is api.key_file or auth.password_file, whatever auth.allow_anonymous says",
            )


def _files(settings: Settings) -> Iterator[Problem]:
    named: list[tuple[str, Path | None]] = [
        ("tls.cert", settings.tls.cert),
        ("tls.key", settings.tls.key),
        ("tls.ca", settings.tls.ca),
        ("auth.password_file", settings.auth.password_file),
        ("auth.access_file", settings.auth.access_file),
        ("tls.crl", settings.tls.crl),
        ("jwt.key_file", settings.jwt.key_file),
        ("jwt.jwks_file", settings.jwt.jwks_file),
        ("callback.secret_file", settings.callback.secret_file),
        ("api.key_file", settings.api.key_file),
        ("history.storage_file", settings.history.storage_file),
    ]
    known = {path for _, path in named}
    for listener in settings.listeners():
        named += [
            ("listen", path) for path in (listener.cert, listener.key, listener.ca, listener.crl) if path not in known
        ]
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


def exposed_secrets(settings: Settings) -> list[tuple[str, Path]]:
    """Returns the keys that name a secret which every user of this machine can read, with the file."""
    named: list[tuple[str, Path | None]] = [
        ("auth.password_file", settings.auth.password_file),
        ("api.key_file", settings.api.key_file),
        ("callback.secret_file", settings.callback.secret_file),
        ("history.storage_file", settings.history.storage_file),
        *(("tls.key", listener.key) for listener in settings.listeners()),
        ("cluster.password_file", settings.cluster.password_file),
        ("cluster.token_file", settings.cluster.token_file),
        ("cluster.credentials_file", settings.cluster.credentials_file),
        ("cluster.nkey_file", settings.cluster.nkey_file),
        ("cluster.key", settings.cluster.key),
        *(("bridge", path) for bridge in settings.bridge for path in (bridge.password_file, bridge.key)),
    ]
    if "HS256" in settings.jwt.algorithms:  # else these are public keys
        named += [("jwt.key_file", settings.jwt.key_file), ("jwt.jwks_file", settings.jwt.jwks_file)]
    found: dict[Path, str] = {}
    for key, path in named:
        if path is not None and path.exists() and path.stat().st_mode & stat.S_IROTH:
            found.setdefault(path, key)
    return [(key, path) for path, key in found.items()]


def _rights(settings: Settings) -> Iterator[Problem]:
    groups = [group.name for group in settings.auth.group]
    if len(set(groups)) < len(groups):
        yield Problem("auth.group", "expected each group once")
    for number, rule in enumerate(settings.access, 1):
        if rule.group is not None and rule.group not in groups:
            yield Problem(
                "access", f"rule {number} is for the group {rule.group!r}, expected one of {groups or 'none'}"
            )
    jwt = settings.jwt
    if "HS256" in jwt.algorithms and len(set(jwt.algorithms)) > 1 and jwt.key_file is not None:
        # Everybody who knows the public key could sign with it as if it were the secret.
        yield Problem("jwt.algorithms", "expected HS256 alone, or RS256 and ES256, got both kinds for one key")
    for listener in settings.listeners():
        if listener.crl is not None and listener.ca is None:
            yield Problem("tls.crl", f"{listener.url} has tls.crl but no tls.ca, expected both")


def _quantities(settings: Settings) -> Iterator[Problem]:
    limits = settings.limits
    if limits.connect_timeout == 0:
        yield Problem("limits.connect_timeout", "expected more than 0: a silent connection would stay open forever")
    if settings.callback.timeout == 0:
        yield Problem("callback.timeout", "expected more than 0")
    if settings.bans.failures and 0 in (settings.bans.window, settings.bans.duration):
        yield Problem("bans.failures", "expected bans.window and bans.duration to be more than 0")
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
    if settings.history.file_size < LEAST_FILE:
        yield Problem("history.file_size", "expected at least 1MiB")
