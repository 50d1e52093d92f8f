"""EMQX's operations on the broker as a whole: nodes, stats, metrics, status and bans. A broker alone is one node."""

import os
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from holdfast.api.auth import address_of
from holdfast.api.banned import Kind, Note, moment
from holdfast.api.models import EmqxBan, EmqxBans, EmqxMetrics, EmqxNode, EmqxStats
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, Services, ServicesDep
from holdfast.errors import NotFound
from holdfast.service.messages import iso

router = APIRouter(responses=RESPONSES, tags=["EMQX"])

NODE = "holdfast"
LONGEST_BAN_S = 10 * 365 * 86400
Aggregate = Annotated[bool, Query(description="One object instead of a list with one for each node.")]


def page_of(count: int, page: int, limit: int) -> dict[str, object]:
    """EMQX's `meta` of a list."""
    return {"page": page, "limit": limit, "count": count, "hasnext": page * limit < count}


def node_shape(services: Services) -> dict[str, object]:
    status, counters = services.status, services.handle.broker.counters
    load = os.getloadavg()
    return {
        "node": NODE,
        "node_status": "running",
        "role": "core",
        "edition": "Holdfast",
        "version": status.version,
        "uptime": status.now_ms() - status.started_at_ms,
        "connections": len(services.handle.broker.sessions),
        "live_connections": counters.connected_now,
        "load1": round(load[0], 2),
        "load5": round(load[1], 2),
        "load15": round(load[2], 2),
    }


def node_shapes(services: Services) -> list[dict[str, object]]:
    """The nodes of the cluster; of the others, what they have told this one."""
    cluster, own = services.status.cluster, node_shape(services)
    if cluster is None:
        return [own]
    return [
        {**own, "node": member["name"]}
        if member["name"] == cluster.name
        else {
            "node": member["name"],
            "node_status": "running" if member["up"] else "stopped",
            "role": "core",
            "edition": "Holdfast",
            "version": member["version"],
            "live_connections": member.get("clients", 0),
        }
        for member in cluster.status()["nodes"]
    ]


@router.get(
    "/nodes",
    summary="The nodes, of which a broker alone is one",
    response_model=list[EmqxNode],
    response_model_exclude_none=True,
)
async def list_nodes(services: ServicesDep, caller: CallerDep) -> Response:
    caller.need_admin()
    return JSONResponse(node_shapes(services))


@router.get("/nodes/{node}", summary="One node", response_model=EmqxNode, response_model_exclude_none=True)
async def get_node(services: ServicesDep, caller: CallerDep, node: Annotated[str, Path(min_length=1)]) -> Response:
    caller.need_admin()
    known = {str(shape["node"]): shape for shape in node_shapes(services)}
    if node not in known:
        raise NotFound(f"there is no node {node!r}, expected {' or '.join(map(repr, sorted(known)))}")
    return JSONResponse(known[node])


def one_or_list(found: dict[str, object], aggregate: bool) -> Response:
    return JSONResponse(found if aggregate else [{**found, "node": NODE}])


@router.get("/stats", summary="How many of what there are now", response_model=list[EmqxStats] | EmqxStats)
async def stats(services: ServicesDep, caller: CallerDep, aggregate: Aggregate = False) -> Response:
    caller.need_admin()
    broker = services.handle.broker
    found: dict[str, object] = {
        "connections.count": len(broker.sessions),
        "live_connections.count": broker.counters.connected_now,
        "sessions.count": len(broker.sessions),
        "subscriptions.count": broker.subscriptions.count,
        "suboptions.count": broker.subscriptions.count,
        "retained.count": broker.retained.live_count(services.status.now_ms()),
        "retained.max": broker.settings.max_retained_messages,
    }
    return one_or_list(found, aggregate)


@router.get("/metrics", summary="What has happened since the start", response_model=list[EmqxMetrics] | EmqxMetrics)
async def metrics(services: ServicesDep, caller: CallerDep, aggregate: Aggregate = False) -> Response:
    """Counters under EMQX's names. `/metrics` without `/api/v5` has all there are, for Prometheus."""
    caller.need_admin()
    counters = services.handle.broker.counters
    received, sent = counters.messages_received, counters.messages_sent
    dropped = {
        "messages.dropped.expired": counters.dropped_expired,
        "delivery.dropped.queue_full": counters.dropped_queue_full,
        "delivery.dropped.too_large": counters.dropped_too_large,
    }
    found: dict[str, object] = {
        "bytes.received": counters.bytes_received,
        "bytes.sent": counters.bytes_sent,
        "messages.received": sum(received),
        "messages.sent": sum(sent),
        **{f"messages.qos{qos}.received": received[qos] for qos in range(3)},
        **{f"messages.qos{qos}.sent": sent[qos] for qos in range(3)},
        **dropped,
        "messages.dropped": sum(dropped.values()) + counters.dropped_slow + counters.dropped_no_member,
        "messages.retained": services.handle.broker.retained.sets,
        "packets.publish.error": counters.publishes_refused,
        "packets.connack.error": counters.connects_refused,
    }
    return one_or_list(found, aggregate)


@router.get(
    "/status",
    summary="Whether the broker runs, in a sentence",
    response_class=PlainTextResponse,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def status(
    services: ServicesDep, format: Annotated[Literal["text", "json"], Query(description="`text` or `json`.")] = "text"
) -> Response:
    """Like `/healthz`, it asks for no login."""
    if format == "json":
        return JSONResponse({"node_name": NODE, "app_status": "running", "rel_vsn": services.status.version})
    return PlainTextResponse(f"Node {NODE} is started\nholdfast is running")


class BanRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    kind: Kind = Field(alias="as")
    who: str = Field(min_length=1, max_length=65535)
    by: str = Field("", max_length=1000)
    reason: str = Field("", max_length=1000)
    until: AwareDatetime | None = Field(
        None, description="Seconds since the epoch, or RFC 3339; without it the ban has no end."
    )


def ban_shape(kind: str, who: str, note: Note) -> dict[str, object]:
    return {"as": kind, "who": who, **asdict(note)}


@router.get("/banned", summary="Who is banned", response_model=EmqxBans)
async def list_banned(
    services: ServicesDep,
    caller: CallerDep,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Response:
    """Those of the configuration, those added here, and addresses that failed to log in too often."""
    caller.need_admin()
    found = services.banned.entries()
    start = (page - 1) * limit
    data = [ban_shape(*one) for one in found[start : start + limit]]
    return JSONResponse({"data": data, "meta": page_of(len(found), page, limit)})


@router.post("/banned", summary="Ban a client, a user or an address", response_model=EmqxBan)
async def add_ban(request: Request, services: ServicesDep, caller: CallerDep, asked: BanRequest) -> Response:
    """It lasts until `until`, or until the configuration is read again: what is to stay belongs into `[bans]`. Clients
    with the name are disconnected; from an address nobody can connect any more.
    """
    caller.need_admin()
    now_ms = services.status.now_ms()
    ends_ms = None if asked.until is None else int(asked.until.timestamp() * 1000)
    note = Note(asked.by or caller.name, asked.reason, iso(now_ms), moment(ends_ms))
    lasts_s = None if ends_ms is None else (ends_ms - now_ms) / 1000
    if lasts_s is not None and not 0 < lasts_s < LONGEST_BAN_S:
        raise Problem(400, "until is over or too far away, expected a moment of the next ten years, or none")
    kind, who = services.banned.add(asked.kind, asked.who, note, lasts_s, address_of(request))
    return JSONResponse(ban_shape(kind, who, note))


@router.delete("/banned/{kind}/{who:path}", summary="Lift a ban", status_code=204, response_class=Response)
async def remove_ban(
    services: ServicesDep, caller: CallerDep, kind: Kind, who: Annotated[str, Path(min_length=1)]
) -> Response:
    """One that stands in `[bans]` comes back when the configuration is read again."""
    caller.need_admin()
    if not services.banned.lift(kind, who):
        raise NotFound(f"there is no ban of the {kind} {who!r}")
    return Response(status_code=204)
