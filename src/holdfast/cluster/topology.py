"""What the log has to be like, and what it is like.

Two settings that look harmless would lose what was acknowledged: fewer copies than were asked for, and servers that
answer before the disk has it. So the settings are verified at every start, and each difference is named.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import ConfigError

SHORTEST_WINDOW_NS: Final = 100_000_000  # JetStream looks for repeated ids for at least so long; we give it none
MONITOR_S: Final = 5.0


def wanted(stream: str, subject: str, replicas: int, max_bytes: int) -> dict[str, Any]:
    """The settings that a stream is made with."""
    return {
        "name": stream,
        "subjects": [subject],
        "num_replicas": replicas,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msgs": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_bytes": max_bytes,
        "duplicate_window": SHORTEST_WINDOW_NS,
        "allow_direct": False,
        "deny_delete": True,
        "deny_purge": False,  # what every node has in its own state is cut off
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "sealed": False,
        "no_ack": False,
    }


FREE: Final = ("max_bytes", "duplicate_window")  # the operator's, or of no consequence


def differences(want: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """One clause for each setting that is not what it has to be."""
    found = []
    for key, value in want.items():
        said = got.get(key, False)
        if key not in FREE and said != value:
            found.append(f"{key}: expected {_text(value)}, got {_text(said)}")
    for key in ("mirror", "sources", "subject_transform"):
        if got.get(key):
            found.append(f"{key}: expected none, got {_text(got[key])}")
    if got.get("persist_mode", "default") != "default":
        found.append(f"persist_mode: expected default, got {got['persist_mode']}")
    return found


def check(want: dict[str, Any], got: dict[str, Any]) -> None:
    found = differences(want, got)
    if found:
        raise ConfigError(
            f"the stream {want['name']} has other settings than this node needs: {'; '.join(found)}. "
            f"Change them on the log servers, or give cluster.name another name"
        )


async def check_sync(monitors: Sequence[str]) -> list[str]:
    """Refuses servers that answer before the disk has it; returns a warning for each that could not be asked."""
    if not monitors:
        return [
            "it was not checked whether the log servers have `sync_interval: always`: without it a power cut loses "
            "what was acknowledged. Name their monitoring addresses in cluster.monitor to have it checked"
        ]
    warnings = []
    for monitor, answer in zip(monitors, await asyncio.gather(*map(_varz, monitors)), strict=True):
        if isinstance(answer, str):
            warnings.append(f"it was not checked whether {monitor} has `sync_interval: always`: {answer}")
            continue
        config = answer.get("jetstream", {}).get("config")
        if not config:
            raise ConfigError(f"expected a log server with JetStream at {monitor}, and it is not enabled there")
        if not config.get("sync_always"):
            every = config.get("sync_interval", 0) / 1e9
            raise ConfigError(
                f"expected `sync_interval: always` on the log server at {monitor}, got a sync every {every:g} s: a "
                f"power cut would lose what was acknowledged. Set it in the server's jetstream block"
            )
    return warnings


async def _varz(monitor: str) -> dict[str, Any] | str:
    def ask() -> dict[str, Any] | str:
        try:
            with urllib.request.urlopen(f"{monitor.rstrip('/')}/varz", timeout=MONITOR_S) as answer:
                said = json.load(answer)
            return said if isinstance(said, dict) else "the answer is no page of a NATS server"
        except (OSError, ValueError) as e:
            return f"it does not answer ({e})"

    return await asyncio.to_thread(ask)


def _text(value: object) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
