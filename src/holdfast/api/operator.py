"""What an operator sees of the broker as it runs: resources, settings, permissions, denials, clients."""

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from holdfast.api.client_list import SORTS, ClientList, Sort
from holdfast.api.models import ClientPage, DenialList, PermissionAnswer, Permissions, ResourceReport, SettingList
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, ServicesDep
from holdfast.broker.access import ANY_QOS
from holdfast.broker.topics import is_valid_filter
from holdfast.service.permissions import ACTIONS, decide, described

router = APIRouter(prefix="/api/v1", responses=RESPONSES, tags=["broker"])

Text = Annotated[str, Query(max_length=65535)]


@router.get("/resources", summary="Memory, disk, queues and listeners", response_model=ResourceReport)
async def resources(services: ServicesDep, caller: CallerDep) -> Response:
    caller.need_admin()
    configuration = services.status.configuration
    listeners = configuration.listeners() if configuration is not None else []
    return JSONResponse({**await services.resources.report(), "listeners": listeners})


@router.get("/settings", summary="The settings, and where each came from", response_model=SettingList)
async def settings(services: ServicesDep, caller: CallerDep) -> Response:
    """What is in force now, which a reload may have changed. No secret is in it: settings name the files of those."""
    caller.need_admin()
    configuration = services.status.configuration
    return JSONResponse({"settings": configuration.settings() if configuration is not None else []})


@router.get("/permissions", summary="Users, and what the rules allow", response_model=Permissions)
async def permissions(services: ServicesDep, caller: CallerDep) -> Response:
    """Users of the password file and API keys, and the rules in the order in which they are asked. Users who log in by
    token, HTTP service or certificate are known only while they are connected.
    """
    caller.need_admin()
    broker, configuration = services.handle.broker, services.status.configuration
    clients: dict[str, int] = {}
    for session in list(broker.sessions.values()):
        if session.attached and session.owner:
            clients[session.owner] = clients.get(session.owner, 0) + 1
    known = configuration.users() if configuration is not None else []
    named = {user["name"] for user in known if user["kind"] == "user"}
    others = [{"name": n, "kind": "connected", "admin": False, "groups": []} for n in sorted(clients) if n not in named]
    users = [
        {
            **user,
            "clients": 0 if user["kind"] == "key" else clients.get(user["name"], 0),
            "banned": user["kind"] != "key" and user["name"] in broker.settings.banned_users,
        }
        for user in [*known, *others]
    ]
    access = broker.access
    return JSONResponse(
        {
            "logins": configuration.logins() if configuration is not None else [],
            "users": users,
            "rules": [] if access is None else [described(rule) for rule in access.rules],
            "no_match": "allow" if access is None or access.allow_unmatched else "deny",
        }
    )


@router.get("/permissions/check", summary="Whether somebody may do something", response_model=PermissionAnswer)
async def check_permission(
    services: ServicesDep,
    caller: CallerDep,
    action: Annotated[Literal["publish", "subscribe", "retain", "receive"], Query()],
    topic: Annotated[
        str, Query(min_length=1, max_length=65535, description="A topic; for `subscribe` a topic filter.")
    ],
    user: Text = "",
    client_id: Text = "",
    qos: Annotated[int, Query(ge=ANY_QOS, le=2, description="-1 asks for no particular QoS.")] = ANY_QOS,
    certificate: bool = False,
) -> Response:
    """By the rules in force now; `because` names the one that decides. As `holdfast check-config --who` says it."""
    caller.need_admin()
    broker = services.handle.broker
    encoded = topic.encode(errors="replace")
    wildcard = "+" in topic or "#" in topic
    if not is_valid_filter(encoded, broker.settings.max_topic_levels) or (wildcard and action != "subscribe"):
        kind = "topic filter" if action == "subscribe" else "topic without wildcards"
        raise Problem(400, f"expected a {kind}, got {topic!r}")
    allowed, why = decide(broker.access, ACTIONS[action], user, client_id, encoded, qos, certificate)
    return JSONResponse({"allowed": allowed, "because": why})


@router.get("/denials", summary="The latest denials", response_model=DenialList)
async def denials(services: ServicesDep, caller: CallerDep) -> Response:
    """Failed logins of clients and of the API, refused connections, protocol errors, publishes and subscriptions that
    the rules did not allow: the latest 500, newest first, since the start. What repeats is one entry with a count.
    """
    caller.need_admin()
    kept = services.status.denials
    return JSONResponse({"total": kept.total, "denials": [asdict(one) for one in kept.newest_first()]})


@router.get("/clients", summary="Clients, searched and sorted", response_model=ClientPage)
async def clients(
    services: ServicesDep,
    caller: CallerDep,
    search: Annotated[str, Query(max_length=1000, description="Part of a client id, user name or address.")] = "",
    state: Annotated[Literal["", "connected", "offline"], Query()] = "",
    sort: Annotated[Sort, Query(description=f"One of {', '.join(SORTS)}.")] = "client_id",
    descending: bool = False,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """`received` and `sent` are bytes since the client connected to this node."""
    caller.need_admin()
    listed = ClientList(services.handle.broker, services.status.node)
    found = await listed.find(search, state, sort, descending)
    start = (page - 1) * limit
    return JSONResponse({"count": len(found), "clients": [listed.shape(one) for one in found[start : start + limit]]})
