"""`mosquitto.conf` with the folder that it includes: each line becomes a setting, or is named with what to do about it.

A table says what each key means here. Listeners gather the lines behind them, as they do there; bridges too
(`mosquitto_bridges`). Password, access and dynamic security files that it names are read with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdfast.errors import UsageError
from holdfast.migration.dynamic_security import add_dynamic_security, parse
from holdfast.migration.mosquitto_bridges import FoundBridge, reason_for
from holdfast.migration.mosquitto_users import add_access, add_users, read_text
from holdfast.migration.settings_files import Beside, FoundSettings

FILES_MOST: Final = 1000
LOOPBACK: Final = "127.0.0.1"
ANY_ADDRESS: Final = "0.0.0.0"
API: Final = f"http://{LOOPBACK}:18083"
PACKET_MOST: Final = 268_435_460
PACKET_LEAST: Final = 16
# What a PUBLISH may hold beside its payload: the longest topic and what stands in front.
BESIDE_PAYLOAD: Final = 65_535 + 16
UNITS_S: Final = {"h": 3600, "d": 86400, "w": 7 * 86400, "m": 30 * 86400, "y": 365 * 86400}

NOT_NEEDED: Final = {
    "autosave_interval": "not needed: what is acknowledged is on disk",
    "autosave_on_changes": "not needed: what is acknowledged is on disk",
    "retained_persistence": "not needed: see persistence",
    "set_tcp_nodelay": "not needed: always so here",
    "allow_duplicate_messages": "not needed: a client is sent a message once, as MQTT 5 wants it",
    "per_listener_settings": "understood: what the listeners say is taken listener by listener",
    "log_timestamp": "diagnostics always have their time",
    "use_identity_as_username": "not needed: a certificate's common name is the user name (tls.identity)",
    "plugin_use": "understood with plugin_load",
    "retry_interval": "not needed: nothing is sent twice on one connection",
}
ELSEWHERE: Final = {
    "user": "the service manager chooses the user (systemd: User=)",
    "pid_file": "the service manager knows the process",
    "log_dest": "diagnostics go to standard error, one line per event; the service manager keeps them",
    "log_facility": "diagnostics go to standard error",
    "log_timestamp_format": "diagnostics have their own form: log.format",
    "connection_messages": "no counterpart; see log.level",
    "upgrade_outgoing_qos": "no counterpart: messages are sent at the lower of both QoS, as the standard says",
    "queue_qos0_messages": "no counterpart: QoS 0 does not wait for absent clients",
    "max_inflight_bytes": "no counterpart; see limits.max_inflight and limits.max_outbox_bytes",
    "memory_limit": "no counterpart; limits.* and retainer.* bound what is kept",
    "psk_file": "keys that are shared in advance are not supported: use certificates",
    "psk_hint": "keys that are shared in advance are not supported: use certificates",
    "use_subject_as_username": "no counterpart; see tls.identity",
    "capath": "name one file with tls.ca",
    "dhparamfile": "not needed with the ciphers of TLS 1.2 and 1.3 that are used here",
    "mount_point": "no counterpart; [[access]] rules keep clients apart",
    "http_dir": "no counterpart: the dashboard is on its own listener",
    "socket_domain": "an address decides: 0.0.0.0 or [::]",
    "bind_interface": "an address decides: name it in the listener's URL",
    "allow_zero_length_clientid": "always allowed, as the standard wants it",
    "auto_id_prefix": "ids that the broker gives have a prefix of their own",
    "use_username_as_clientid": "no counterpart; auth.client_id binds ids to user names",
    "accept_protocol_versions": "no counterpart: 3.1, 3.1.1 and 5.0 are spoken",
    "protocol": "expected mqtt or websockets",
    "packet_buffer_size": "not needed",
    "websockets_headers_size": "not needed",
    "websockets_log_level": "not needed; see log.level",
    "tls_engine": "no counterpart",
    "tls_engine_kpass_sha1": "no counterpart",
    "tls_keyform": "keys are PEM files",
    "enable_control_api": "no counterpart; see the HTTP API",
    "max_connections": "expected a number",
    "plugin": "no counterpart: who may log in and do what has to be said anew (auth, callback, [[access]])",
    "auth_plugin": "no counterpart: who may log in and do what has to be said anew (auth, callback, [[access]])",
    "global_plugin": "no counterpart: who may log in and do what has to be said anew (auth, callback, [[access]])",
    "plugin_load": "no counterpart: who may log in and do what has to be said anew (auth, callback, [[access]])",
    "auth_plugin_deny_special_chars": "not needed: names with wildcards never widen a rule",
    "disable_client_cert_date_checks": "no counterpart: certificates are asked for their dates",
    "http_api": "the API has its own listener: http://HOST:PORT in listen",
    "listener_auto_id_prefix": "ids that the broker gives have a prefix of their own",
    "max_topic_alias_broker": "no counterpart: aliases are used as far as the client allows",
    "proxy_protocol_v2_require_tls": "no counterpart",
    "enable_proxy_protocol": "needs the addresses of the balancers: ?proxy=ADDRESS at the listener's URL",
}
BRIDGE_KEYS: Final = frozenset(
    [
        "address",
        "addresses",
        "topic",
        "cleansession",
        "clientid",
        "connection",
        "idle_timeout",
        "keepalive_interval",
        "local_cleansession",
        "local_clientid",
        "local_password",
        "local_username",
        "notification_topic",
        "notifications",
        "notifications_local_only",
        "password",
        "remote_clientid",
        "remote_password",
        "remote_username",
        "restart_timeout",
        "round_robin",
        "start_type",
        "threshold",
        "try_private",
        "username",
    ]
)
NO_CONNECTION: Final = "belongs to a bridge, and no connection stands before it"
SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk")
LOG_LEVELS: Final = {"error": "error", "warning": "warning", "notice": "info", "information": "info", "debug": "debug"}
SEVERITY: Final = ["debug", "info", "warning", "error"]
COUNTS: Final = {
    "max_queued_messages": "limits.max_queued_messages",
    "max_queued_bytes": "limits.max_queued_bytes",
    "global_max_clients": "limits.max_connections",
    "global_max_connections": "limits.max_connections",
    "sys_interval": "sys.interval",
}


@dataclass(frozen=True)
class Line:
    where: str
    key: str
    value: str

    @property
    def shown(self) -> str:
        return f"{self.key} {'...' if self.key in SECRETS else self.value}".strip()


@dataclass
class FoundListener:
    port: int = 0
    host: str = ""
    websockets: bool = False
    options: dict[str, str] = field(default_factory=dict)
    named: bool = False

    @property
    def url(self) -> str:
        tls = "cert" in self.options and "key" in self.options
        scheme = ("wss" if tls else "ws") if self.websockets else ("tls" if tls else "tcp")
        tls_only = ("cert", "key", "ca", "crl", "require_client_certificate")
        options = {key: value for key, value in self.options.items() if tls or key not in tls_only}
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(f"{key}={quote(value, safe='/')}" for key, value in options.items())
        return f"{scheme}://{host}:{self.port}" + (f"?{query}" if query else "")


def read_conf(path: Path) -> FoundSettings:
    """Raises UsageError where a file cannot be read, or a file that denies access cannot be understood."""
    found = FoundSettings(str(path))
    Conf(found, path).read()
    return found


class Conf:
    def __init__(self, found: FoundSettings, path: Path) -> None:
        self.found = found
        self.path = path
        self.default = FoundListener(1883)
        self.listeners: list[FoundListener] = []
        self.current = self.default
        self.per_listener = False
        self.in_bridge = False
        self.bridges: list[FoundBridge] = []
        self.log_levels: list[str] = []
        self.plugin: Line | None = None
        self.persistence: dict[str, str] = {}
        self.secrets: dict[str, str] = {}  # password and access files, by their key, of all listeners

    def read(self) -> None:
        lines = list(self.lines(self.path, True))
        self.per_listener = any(one.key == "per_listener_settings" and one.value == "true" for one in lines)
        for line in lines:
            self.found.lines += 1
            if not self.take(line):
                self.leave(line)
        self.finish()

    def lines(self, path: Path, main: bool) -> Iterator[Line]:
        for number, raw in enumerate(read_text(path).splitlines(), 1):
            text = raw.strip()
            if not text or text.startswith("#"):
                continue
            key, _, value = text.replace("\t", " ", 1).partition(" ")
            line = Line(f"{path.name}, line {number}", key, value.strip())
            if key == "include_dir" and main:
                yield from self.included(line)
            else:
                yield line

    def included(self, line: Line) -> Iterator[Line]:
        folder = self.path.parent / line.value
        try:
            files = sorted(file for file in folder.iterdir() if file.name.endswith(".conf"))
        except OSError as error:
            self.found.leave(line.where, line.shown, f"the folder cannot be read: {(error.strerror or '').lower()}")
            return
        for file in files[:FILES_MOST]:
            yield from self.lines(file, False)

    def leave(self, line: Line) -> None:
        if line.key in BRIDGE_KEYS or line.key.startswith("bridge_"):
            reason = reason_for(line.key) if self.bridges else NO_CONNECTION
        elif line.key.startswith(("plugin_opt_", "auth_opt_")):
            reason = "belongs to a plugin that has no counterpart"
        else:
            reason = ELSEWHERE.get(line.key, "no such setting is known here")
        self.found.leave(line.where, line.shown, reason)

    def take(self, line: Line) -> bool:
        """Whether the line means something here."""
        key, value = line.key, line.value
        if key == "connection":
            self.in_bridge = bool(value)
            self.bridges.append(FoundBridge(value, self.path.parent))
            return bool(value)
        if key in ("listener", "port", "bind_address"):
            self.in_bridge = False
            return self.take_listener(line)
        if self.in_bridge and (key in BRIDGE_KEYS or key.startswith("bridge_")):
            return self.bridges[-1].take(key, value)
        if key in NOT_NEEDED:
            return True
        taken = self.take_option(line)
        if taken is not None:
            return taken
        if key in COUNTS:
            return self.set_number(COUNTS[key], value)
        handler: Callable[[str], bool] | None = getattr(self, f"take_{key}", None) if key in OWN else None
        return handler(value) if handler is not None else False

    def take_listener(self, line: Line) -> bool:
        words = line.value.split()
        if line.key == "bind_address":
            self.default.host = line.value
            return True
        if not words or not words[0].isdecimal() or not 0 < int(words[0]) < 65536:
            return False  # a socket in the file system has the port 0
        if line.key == "port":
            self.default.port = int(words[0])
            self.default.named = True
            self.current = self.default
            return True
        self.current = FoundListener(int(words[0]), words[1] if len(words) > 1 else "", named=True)
        self.listeners.append(self.current)
        return True

    def take_option(self, line: Line) -> bool | None:
        """What belongs to the listener at hand; None for other keys."""
        key, value = line.key, line.value
        if key == "protocol":
            self.current.websockets = value == "websockets"
            return value in ("mqtt", "websockets")
        if key in FILES:
            self.current.options[FILES[key]] = str(self.path.parent / value)
            return bool(value)
        if key == "require_certificate":
            self.current.options["require_client_certificate"] = value
            return value in ("true", "false")
        if key == "max_connections":
            if value.isdecimal():
                self.current.options["max_connections"] = value
            return value.isdecimal() or value == "-1"
        if key in ("allow_anonymous", "listener_allow_anonymous"):
            if self.per_listener or key.startswith("listener"):
                self.current.options["allow_anonymous"] = value
            else:
                self.found.values["auth.allow_anonymous"] = value == "true"
            return value in ("true", "false")
        if key in ("password_file", "acl_file"):
            if self.secrets.setdefault(key, value) != value:
                self.found.leave(
                    line.where, line.shown, "another listener names another file; here all listeners share one"
                )
            return True
        return None

    def set_number(self, key: str, value: str) -> bool:
        if not value.isdecimal():
            return False
        self.found.values[key] = int(value)
        return True

    def take_max_inflight_messages(self, value: str) -> bool:
        if not value.isdecimal():
            return False
        self.found.values["limits.max_inflight"] = min(int(value) or 65535, 65535)
        return True

    def take_max_packet_size(self, value: str) -> bool:
        if not value.isdecimal():
            return False
        size = int(value)
        self.found.values["limits.max_packet_size"] = min(max(size, PACKET_LEAST), PACKET_MOST) if size else PACKET_MOST
        return True

    def take_message_size_limit(self, value: str) -> bool:
        if not value.isdecimal():
            return False
        if int(value):
            self.found.values.setdefault("limits.max_packet_size", min(int(value) + BESIDE_PAYLOAD, PACKET_MOST))
            self.found.notes.append(
                "message_size_limit bounds payloads there; here limits.max_packet_size bounds packets: it is that "
                "much and the longest topic"
            )
        return True

    def take_max_keepalive(self, value: str) -> bool:
        if not value.isdecimal() or int(value) > 65535:
            return False
        self.found.values["limits.keep_alive_max"] = int(value)
        return True

    def take_max_topic_alias(self, value: str) -> bool:
        if not value.isdecimal() or int(value) > 65535:
            return False
        self.found.values["limits.topic_alias_maximum"] = int(value)
        return True

    def take_max_qos(self, value: str) -> bool:
        if value not in ("0", "1", "2"):
            return False
        self.found.values["limits.max_qos"] = min(int(value), self.found.values.get("limits.max_qos", 2))
        return True

    take_maximum_qos = take_max_qos

    def take_persistent_client_expiration(self, value: str) -> bool:
        number, unit = value[:-1], value[-1:]
        if not number.isdecimal() or unit not in UNITS_S:
            return False
        self.found.values["limits.session_expiry_max"] = min(int(number) * UNITS_S[unit], 0xFFFFFFFF)
        return True

    def take_retain_expiry_interval(self, value: str) -> bool:
        if not value.isdecimal():
            return False
        self.found.values["retainer.expiry_interval"] = int(value) * 60
        return True

    def take_retain_available(self, value: str) -> bool:
        self.found.values["retainer.enable"] = value == "true"
        return value in ("true", "false")

    def take_check_retain_source(self, value: str) -> bool:
        self.found.values["auth.check_retain_source"] = value == "true"
        return value in ("true", "false")

    def take_persistence(self, value: str) -> bool:
        self.persistence["on"] = value
        return value in ("true", "false")

    def take_persistence_location(self, value: str) -> bool:
        self.persistence["folder"] = value
        return True

    def take_persistence_file(self, value: str) -> bool:
        self.persistence["file"] = value
        return True

    def take_log_type(self, value: str) -> bool:
        self.log_levels.append("debug" if value == "all" else LOG_LEVELS.get(value, ""))
        return value == "all" or value in LOG_LEVELS

    def take_ciphers(self, value: str) -> bool:
        self.found.values["tls.ciphers"] = value
        return True

    def take_tls_version(self, value: str) -> bool:
        version = value.removeprefix("tlsv")
        if version in ("1.2", "1.3"):
            self.found.values["tls.min_version"] = version
        return version in ("1.2", "1.3")

    def take_websockets_origin(self, value: str) -> bool:
        origins = self.found.values.setdefault("websocket.origins", [])
        origins.append(value)
        return value.startswith(("http://", "https://"))

    def take_clientid_prefixes(self, value: str) -> bool:
        self.found.values["auth.client_id"] = f"{value}*"
        return bool(value) and "*" not in value and "%" not in value

    def take_plugin(self, value: str) -> bool:
        self.plugin = Line("", "plugin", value)
        return "dynamic_security" in value

    take_auth_plugin = take_global_plugin = take_plugin_load = take_plugin

    def take_plugin_opt_config_file(self, value: str) -> bool:
        if self.plugin is None or "dynamic_security" not in self.plugin.value:
            return False
        name = self.path.parent / value
        add_dynamic_security(self.found, parse(read_text(name), str(name)), name.name)
        return True

    def add_bridges(self) -> None:
        for bridge in self.bridges:
            table = bridge.finish()
            if table is None:
                self.found.notes.append(f"bridge {bridge.table['name']} has no address or no topic, and stays behind")
                continue
            if bridge.password is not None:
                file = f"bridge-{table['name']}.password"
                self.found.secrets[file] = bridge.password
                table["password_file"] = Beside(file)
            self.give_rights(bridge, table)
            self.found.tables.setdefault("bridge", []).append(table)
        if self.found.tables.get("bridge"):
            self.found.notes.append(
                "bridges speak MQTT 3.1.1 as mosquitto does by itself; where the other broker knows it, "
                'protocol = "5" also carries properties'
            )

    def give_rights(self, bridge: FoundBridge, table: dict[str, Any]) -> None:
        """In mosquitto no rule applies to a bridge. Here it is a user like others, so it gets a name and rules."""
        if self.found.access is None and "access" not in self.found.tables:
            return
        user = table.get("local_username")
        if user is None:
            user = f"bridge-{table['name']}"
            while user in (self.found.users or {}):
                user += "-"
            table["local_username"] = user
            self.found.tables["access"] = [*bridge.rights(user), *self.found.tables.get("access", [])]
            return
        self.found.notes.append(
            f"bridge {table['name']} may do here what the rules allow its user {user}; no rule applied to it in "
            "mosquitto"
        )

    def finish(self) -> None:
        found = self.found
        self.add_secrets()
        self.add_bridges()
        listeners = [*([self.default] if self.default.named or not self.listeners else []), *self.listeners]
        for listener in listeners:
            if not listener.host:
                # Without any listener mosquitto 2 answers on its own machine only.
                listener.host = ANY_ADDRESS if listener.named else LOOPBACK
                if listener.named:
                    found.notes.append(
                        f"port {listener.port} answers on every IPv4 address; for IPv6 add {ipv6(listener)}"
                    )
        if any(listener.websockets for listener in listeners):
            found.notes.append(
                "WebSockets answer on the path /mqtt here and on any there: websocket.path names another"
            )
        found.values = {"listen": [*(one.url for one in listeners), API], **found.values}
        if self.persistence.get("on") != "true":
            found.values["retainer.storage_type"] = "ram"
            found.notes.append("mosquitto kept nothing on disk (persistence); so retainer.storage_type is ram")
        else:
            folder = Path(self.persistence.get("folder") or "/var/lib/mosquitto/")
            file = self.persistence.get("file") or "mosquitto.db"
            found.notes.append(f"its messages and sessions: holdfast import {folder / file} --data data")
        levels = [level for level in self.log_levels if level]
        if levels:
            found.values["log.level"] = min(levels, key=SEVERITY.index)

    def add_secrets(self) -> None:
        """Read the files that say who may come in, and do what."""
        for key, value in self.secrets.items():
            path = self.path.parent / value
            add = add_users if key == "password_file" else add_access
            try:
                text = read_text(path)
            except UsageError as error:
                raise UsageError(
                    f"{error}; {self.path} names it as {key}, and without it more would be allowed"
                ) from None
            add(self.found, text, path.name)


def ipv6(listener: FoundListener) -> str:
    return FoundListener(listener.port, "::", listener.websockets, listener.options).url


FILES: Final = {"certfile": "cert", "keyfile": "key", "cafile": "ca", "crlfile": "crl"}
OWN: Final = frozenset(name.removeprefix("take_") for name in vars(Conf) if name.startswith("take_")) - {
    "listener",
    "option",
}
