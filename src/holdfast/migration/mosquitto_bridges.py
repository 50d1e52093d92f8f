"""The `connection` blocks of a `mosquitto.conf` as `[[bridge]]` tables. A password goes into a file of its own."""

from pathlib import Path
from typing import Any, Final

from holdfast.rules.bridge_topic import BridgeTopic, parse_bridge_topic

TEXTS: Final = {
    "clientid": "client_id",
    "remote_clientid": "client_id",
    "local_clientid": "local_client_id",
    "local_username": "local_username",
    "username": "username",
    "remote_username": "username",
    "notification_topic": "notification_topic",
}
SWITCHES: Final = {
    "cleansession": "clean_session",
    "notifications": "notifications",
    "notifications_local_only": "notifications_local_only",
    "round_robin": "round_robin",
    "try_private": "private",
    "bridge_insecure": "insecure",
    "bridge_outgoing_retain": "outgoing_retain",
}
NUMBERS: Final = {
    "keepalive_interval": "keep_alive",
    "idle_timeout": "idle_timeout",
    "threshold": "threshold",
    "bridge_session_expiry_interval": "session_expiry",
    "bridge_receive_maximum": "max_inflight",
}
FILES: Final = {"bridge_cafile": "ca", "bridge_certfile": "cert", "bridge_keyfile": "key"}
PASSWORDS: Final = ("password", "remote_password")
NOT_NEEDED: Final = frozenset(
    [
        "local_password",  # nobody has to prove who he is to himself
        "bridge_attempt_unsubscribe",
        "bridge_reload_type",
        "local_cleansession",
    ]
)
PROTOCOLS: Final = {"mqttv50": "5", "mqttv311": "3.1.1"}
LEFT: Final = {
    "start_type": "expected automatic, lazy or once",
    "bridge_protocol_version": "expected mqttv50 or mqttv311",
    "bridge_capath": "name one file with ca",
    "bridge_psk": "keys that are shared in advance are not supported: use certificates",
    "bridge_identity": "keys that are shared in advance are not supported: use certificates",
    "bridge_tls_version": "not needed: TLS 1.2 and 1.3 are spoken",
}
NO_COUNTERPART: Final = "no counterpart for bridges"


class FoundBridge:
    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[str] = []
        self.table: dict[str, Any] = {"name": plain(name)}
        self.topics: list[BridgeTopic] = []
        self.password: str | None = None
        self.settings: dict[str, Any] = {}

    def take(self, key: str, value: str) -> bool:
        """Whether the line means something here."""
        if key in ("address", "addresses"):
            self.hosts += value.split()
            return bool(value)
        if key == "topic":
            return self.take_topic(value)
        if key in PASSWORDS:
            self.password = value
            return True
        if key in TEXTS:
            self.settings[TEXTS[key]] = value
            return bool(value)
        if key in SWITCHES:
            self.settings[SWITCHES[key]] = value == "true"
            return value in ("true", "false")
        if key in NUMBERS:
            if value.isdecimal():
                self.settings[NUMBERS[key]] = int(value)
            return value.isdecimal()
        if key in FILES:
            self.settings[FILES[key]] = str(self.folder / value)
            return bool(value)
        if key == "bridge_protocol_version" and value in PROTOCOLS:
            self.settings["protocol"] = PROTOCOLS[value]
            return True
        if key == "start_type" and value in ("automatic", "lazy", "once"):
            self.settings["start"] = value
            return True
        if key == "restart_timeout":
            return self.take_restart(value)
        return key in NOT_NEEDED

    def take_topic(self, value: str) -> bool:
        try:
            self.topics.append(parse_bridge_topic(value))
        except ValueError:
            return False
        return True

    def take_restart(self, value: str) -> bool:
        words = value.split()
        if not 0 < len(words) <= 2 or not all(word.isdecimal() and int(word) > 0 for word in words):
            return False
        self.settings["retry"] = int(words[0])
        self.settings["retry_max"] = max(map(int, words))
        return True

    def finish(self) -> dict[str, Any] | None:
        """The table; None where it has no address or no topic, with which mosquitto would not have started either."""
        if not self.hosts or not self.topics:
            return None
        scheme = "mqtts" if {"ca", "cert"} & self.settings.keys() else "mqtt"
        return {
            **self.table,
            "address": [f"{scheme}://{with_port(host)}" for host in self.hosts],
            "topic": [str(topic) for topic in self.topics],
            "protocol": "3.1.1",  # what mosquitto speaks to others by itself
            **self.settings,
        }

    def rights(self, user: str) -> list[dict[str, Any]]:
        """Rules that let the bridge's user do here what its lines need, and nothing else."""
        out = [topic.local_filter for topic in self.topics if topic.goes_out]
        in_ = [topic.local_filter for topic in self.topics if topic.comes_in]
        rules = [(["subscribe", "receive"], out), (["publish", "retain"], in_)]
        return [
            {"permission": "allow", "action": actions, "filter": filters, "user": user}
            for actions, filters in rules
            if filters
        ]


def with_port(host: str) -> str:
    """mosquitto means 1883 where none is named, also with TLS."""
    return host if ":" in host.rpartition("]")[2] else f"{host}:1883"


def plain(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:64]
    return kept or "bridge"


def reason_for(key: str) -> str:
    """Why a line of a bridge stays behind."""
    if key == "topic":
        return "not a line that a bridge can have: PATTERN [out|in|both] [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]"
    return LEFT.get(key, NO_COUNTERPART)
