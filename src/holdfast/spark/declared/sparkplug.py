"""Sparkplug B as a long table: a row for each value of each metric, complete, because history has every birth in order.

What is known of an edge node is in its rows that have not ended: each metric that a birth named has one, with its alias
and its datatype. A data message that says only an alias is read by them. Where a metric gets a new value, its row ends.

A death makes all that its node or device said stale: each metric gets a row that says so. The death of a node is its
will, so it may be late; it counts only when its `bdSeq` is that of the birth in force. A birth begins anew: what it
does not name is stale.

Messages of a node are numbered. A row whose message does not follow the one before it says so in `seq_gap`; what has
been lost there, nobody knows. The number that the node has come to stands in `node_seq` of its `bdSeq`.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.declared.sparkplug_payload import datatype_name, parse_payload, properties_of, typed_value

NAMESPACE: Final = "spBv1.0"
_TIME: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("edge", pa.string()),
        ("group", pa.string()),
        ("node", pa.string()),
        ("device", pa.string()),
        ("metric", pa.string()),
        ("alias", pa.int64()),
        ("datatype", pa.string()),
        ("long_value", pa.int64()),
        ("double_value", pa.float64()),
        ("boolean_value", pa.bool_()),
        ("string_value", pa.string()),
        ("bytes_value", pa.binary()),
        ("timestamp_value", _TIME),
        ("is_null", pa.bool_()),
        ("is_stale", pa.bool_()),
        ("is_historical", pa.bool_()),
        ("properties", pa.string()),
        ("metric_timestamp", _TIME),
        ("message_type", pa.string()),
        ("seq", pa.int32()),
        ("seq_gap", pa.bool_()),
        ("node_seq", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("topic", pa.string()),
        ("to_offset", pa.int64()),
    ]
)
ENDED: Final = "to_offset"
# What brings the messages of one node together, over the topic; a host's state has none.
EDGE_SQL: Final = "concat_ws('/', get(split(topic, '/'), 1), get(split(topic, '/'), 3))"
BD_SEQ: Final = "bdSeq"
_VALUES: Final = tuple(name for name in SCHEMA.names if name.endswith("_value"))
_OF_NODE: Final = ("NBIRTH", "NDEATH", "NDATA", "NCMD")
_OF_DEVICE: Final = ("DBIRTH", "DDEATH", "DDATA", "DCMD")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


class Address(NamedTuple):
    """What a topic says: `spBv1.0/GROUP/TYPE/NODE[/DEVICE]`, or `spBv1.0/STATE/HOST`."""

    group: str | None
    type: str
    node: str
    device: str | None

    @property
    def edge(self) -> str:
        return "STATE" if self.group is None else f"{self.group}/{self.node}"


def parse_topic(topic: str) -> Address:
    """Raises ValueError."""
    levels = topic.split("/")
    if levels[0] == NAMESPACE:
        if len(levels) == 3 and levels[1] == "STATE":
            return Address(None, "STATE", levels[2], None)
        if len(levels) == 4 and levels[2] in _OF_NODE:
            return Address(levels[1], levels[2], levels[3], None)
        if len(levels) == 5 and levels[2] in _OF_DEVICE:
            return Address(levels[1], levels[2], levels[3], levels[4])
    raise ValueError(f"expected a topic {NAMESPACE}/GROUP/TYPE/NODE[/DEVICE], got {topic!r}")


def problem_of(topic: str, payload: bytes) -> str | None:
    """Why a message cannot be read, if it cannot."""
    try:
        if parse_topic(topic).type == "STATE":
            _state(payload)
        else:
            parse_payload(payload)
    except ValueError as error:
        return str(error)
    return None


def follow(held: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows of a table after these rows of history: held ones that have ended, or not, and new ones."""
    if not rows.num_rows:
        return held
    ordered = rows.sort_by("offset").select(["edge", "offset", "timestamp", "topic", "payload"])
    mine = pc.is_in(held["edge"], pc.unique(rows["edge"]))
    nodes: dict[str, Node] = {}
    for row in held.filter(mine).to_pylist():
        nodes.setdefault(row["edge"], Node()).hold(row)
    for row in ordered.to_pylist():
        try:
            nodes.setdefault(row["edge"], Node()).take(row)
        except ValueError:
            continue  # it stands in the quarantine
    found = [row for node in nodes.values() for row in node.rows()]
    return pa.concat_tables([held.filter(pc.invert(mine)), pa.Table.from_pylist(found, SCHEMA)])


class Node:
    """One edge node and its devices: the row of each metric that has not ended, and rows that have."""

    def __init__(self) -> None:
        self.open: dict[tuple[str | None, str], Row] = {}
        self.aliases: dict[tuple[str | None, int], str] = {}
        self.alive: dict[str | None, bool] = {}
        self.ended: list[Row] = []

    def hold(self, row: Row) -> None:
        owner = _owner(row)
        self.open[owner, row["metric"]] = row
        self.alive[owner] = self.alive.get(owner, False) or not row["is_stale"]
        if row["alias"] is not None:
            self.aliases[owner, row["alias"]] = row["metric"]

    def rows(self) -> Iterator[Row]:
        yield from self.ended
        yield from self.open.values()

    def take(self, message: Row) -> None:
        """Raises ValueError where it cannot be read; nothing has changed then."""
        address = parse_topic(message["topic"])
        if address.type == "STATE":
            self._host(message, address)
            return
        payload: Any = parse_payload(message["payload"])
        seq = payload.seq if payload.HasField("seq") else None
        base = {
            "edge": address.edge,
            "group": address.group,
            "node": address.node,
            "device": address.device,
            "message_type": address.type,
            "seq": None if seq is None else seq % 256,
            "seq_gap": False,
            "is_null": False,
            "is_stale": False,
            "is_historical": False,
            **{name: message[name] for name in ("offset", "timestamp", "topic")},
        }
        at = _time(payload.timestamp) if payload.HasField("timestamp") else message["timestamp"]
        match address.type:
            case "NBIRTH":
                self._node_birth(payload, base, at)
            case "NDEATH":
                self._node_death(payload, base, at)
            case "DBIRTH":
                self._number(base)
                self._birth(payload, base, at, (address.device,))
            case "DDEATH":
                self._number(base)
                self._stale(base, at, (address.device,))
            case "NDATA" | "DDATA":
                self._number(base)
                base["is_stale"] = not self.is_alive(address.device)
                for metric in payload.metrics:
                    self._put(self._row(metric, base, at))
            case _:
                for metric in payload.metrics:  # a command is no value of the metric
                    self._end(self._row(metric, base, at), base["offset"])

    def is_alive(self, device: str | None) -> bool:
        """Whether a birth is in force. Of what has never been born nothing is stale: nobody knows."""
        return self.alive.get(None, True) and self.alive.get(device, True)

    def _node_birth(self, payload: Any, base: Row, at: datetime | None) -> None:
        devices = {device for device, _ in self.open if device is not None}
        self._birth(payload, base, at, (None,))
        for device in devices:  # they have to be born again
            self._stale({**base, "device": device}, at, (device,))
            for key in [key for key in self.aliases if key[0] == device]:
                self.open[device, self.aliases.pop(key)]["alias"] = None
        if (None, BD_SEQ) not in self.open or self.open[None, BD_SEQ]["offset"] != base["offset"]:
            self._put({**base, "metric": BD_SEQ, "datatype": "UInt64", "is_null": True, "metric_timestamp": at})
            self._look()
        self.open[None, BD_SEQ]["node_seq"] = base["seq"]

    def _birth(self, payload: Any, base: Row, at: datetime | None, owner: tuple[str | None]) -> None:
        """All metrics of a node or a device, with their aliases; what it had before and does not name is stale."""
        for key in [key for key in self.aliases if key[0] == owner[0]]:
            del self.aliases[key]
        before = {key for key in self.open if key[0] == owner[0]}
        for metric in payload.metrics:
            self._put(self._row(metric, base, at))
        for known in before:
            if self.open[known]["offset"] != base["offset"]:
                self.open[known]["alias"] = None
        self._stale(base, at, owner, before)

    def _node_death(self, payload: Any, base: Row, at: datetime | None) -> None:
        said = next(
            (metric.long_value or metric.int_value for metric in payload.metrics if metric.name == BD_SEQ), None
        )
        birth = self.open.get((None, BD_SEQ))
        born = None if birth is None else birth["long_value"]
        if said is not None and born is not None and said != born:
            return  # the will of a connection that another has followed
        self._stale(base, at, None)
        node = self.open.get((None, BD_SEQ))
        if node is not None:
            node["node_seq"] = None

    def _stale(
        self,
        base: Row,
        at: datetime | None,
        owner: tuple[str | None] | None,
        among: set[tuple[str | None, str]] | None = None,
    ) -> None:
        """Marks what a node or device (or all of them) said before this message as stale; its values stay."""
        for key, row in list(self.open.items()):
            if (owner is not None and key[0] != owner[0]) or (among is not None and key not in among):
                continue
            if row["offset"] == base["offset"] or row["is_stale"]:
                continue
            kept = {name: row[name] for name in ("metric", "alias", "datatype", "is_null", "node_seq", *_VALUES)}
            self._put({**base, **kept, "device": key[0], "is_stale": True, "metric_timestamp": at})
        self._look()

    def _look(self) -> None:
        """Who is alive, after a birth or a death: whoever has said something that is not stale."""
        self.alive = {}
        for (owner, _), row in self.open.items():
            self.alive[owner] = self.alive.get(owner, False) or not row["is_stale"]

    def _number(self, base: Row) -> None:
        """Whether the message follows the one before it; the node has come to its number."""
        node = self.open.get((None, BD_SEQ))
        before = None if node is None else node["node_seq"]
        base["seq_gap"] = before is None or base["seq"] != (before + 1) % 256
        if node is not None and base["seq"] is not None:
            node["node_seq"] = base["seq"]

    def _row(self, metric: Any, base: Row, at: datetime | None) -> Row:
        # as a long: what is above its largest is below 0
        alias = (metric.alias ^ 1 << 63) - (1 << 63) if metric.HasField("alias") else None
        device = base["device"]
        name = metric.name if metric.HasField("name") and metric.name else None
        if name is None and alias is not None:
            name = self.aliases.get((device, alias))
        known = self.open.get((device, name)) if name is not None else None
        datatype = datatype_name(metric.datatype) if metric.datatype else known["datatype"] if known else None
        values = typed_value(metric, datatype or "")
        if "timestamp_value" in values:
            values["timestamp_value"] = _time(values["timestamp_value"])
        if alias is None and known is not None and "BIRTH" not in base["message_type"]:
            alias = known["alias"]
        return {
            **base,
            **values,
            "metric": name,
            "alias": alias,
            "datatype": datatype,
            "is_null": not values,
            "is_historical": metric.is_historical,
            "properties": properties_of(metric),
            "metric_timestamp": _time(metric.timestamp) if metric.HasField("timestamp") else at,
        }

    def _put(self, row: Row) -> None:
        """A new row of a metric; the one before it ends. What is not known, or is of long ago, ends at once."""
        name = row["metric"]
        if name is None or row.get("is_historical"):
            self._end(row, row["offset"])
            return
        key = (_owner(row), name)
        before = self.open.get(key)
        if before is not None:
            row.setdefault("node_seq", before["node_seq"])
            self._end(before, row["offset"])
        self.open[key] = {**dict.fromkeys(SCHEMA.names), **row}
        self.alive.setdefault(key[0], not row["is_stale"])
        if row.get("alias") is not None:
            self.aliases[row["device"], row["alias"]] = name

    def _end(self, row: Row, offset: int) -> None:
        self.ended.append({**row, "node_seq": None, ENDED: offset})

    def _host(self, message: Row, address: Address) -> None:
        online, at = _state(message["payload"])
        self._put(
            {
                "edge": address.edge,
                "node": address.node,
                "device": None,
                "group": None,
                "metric": "online",
                "datatype": "Boolean",
                "boolean_value": online,
                "is_null": False,
                "is_stale": False,
                "is_historical": False,
                "seq_gap": False,
                "metric_timestamp": message["timestamp"] if at is None else _time(at),
                "message_type": "STATE",
                **{name: message[name] for name in ("offset", "timestamp", "topic")},
            }
        )


def _owner(row: Row) -> str | None:
    """Whose metric it is: a device's, the node's own (None), or of the hosts, which share one place, the host's."""
    return str(row["node"]) if row["group"] is None else row["device"]


def _state(payload: bytes) -> tuple[bool, int | None]:
    """A host application's state: JSON since Sparkplug 3.0, a word before. Raises ValueError."""
    text = payload.decode(errors="replace")
    if text in ("ONLINE", "OFFLINE"):
        return text == "ONLINE", None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("online"), bool):
        raise ValueError('expected {"online": true or false, "timestamp": …} of a host, which this is not')
    at = found.get("timestamp")
    return found["online"], at if isinstance(at, int) and not isinstance(at, bool) else None


def _time(milliseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # no calendar goes that far
        return None
