"""Links to other brokers, under `/api/v1/bridges`: made, changed and ended while the broker runs."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from fastapi.responses import JSONResponse, Response

from holdfast.api.models import Bridge, BridgeEnded, Bridges, BridgeTested, BridgeTold
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, Services, ServicesDep
from holdfast.api.status import BridgesView

router = APIRouter(prefix="/api/v1/bridges", responses=RESPONSES, tags=["bridges"])

Name = Annotated[str, Query(min_length=1, max_length=64, description="The name of a bridge.")]
Told = Annotated[
    dict[str, Any],
    Body(
        description="The keys of a `[[bridge]]` table. `password` is kept in a file of the data folder that only the "
        "broker's user can read; other files than those there cannot be named here as `password_file`."
    ),
]


def bridges_of(services: Services) -> BridgesView:
    if services.status.bridges is None:
        raise Problem(409, "this broker has no bridges")
    return services.status.bridges


@router.get("", summary="All bridges, and how they are doing", response_model=Bridges)
async def listed(services: ServicesDep, caller: CallerDep) -> Response:
    caller.need_admin()
    return JSONResponse({"bridges": bridges_of(services).status()})


@router.get("/told", summary="A bridge as it was written down", response_model=BridgeTold)
async def told(services: ServicesDep, caller: CallerDep, name: Name) -> Response:
    caller.need_admin()
    return JSONResponse({"bridge": bridges_of(services).told(name)})


@router.post("", summary="Make a bridge, or change one", response_model=Bridge)
async def add(
    services: ServicesDep,
    caller: CallerDep,
    bridge: Told,
    replace: Annotated[bool, Query(description="Also where one of that name is there.")] = False,
) -> Response:
    """It begins at once, is there after a restart, and touches no other bridge. What stands in the configuration is
    changed there.
    """
    caller.need_admin()
    return JSONResponse(await bridges_of(services).add(bridge, replace))


@router.delete("", summary="End a bridge", response_model=BridgeEnded)
async def remove(services: ServicesDep, caller: CallerDep, name: Name) -> Response:
    """What waits for the other side is forgotten; what is retained stays, on both."""
    caller.need_admin()
    await bridges_of(services).remove(name)
    return JSONResponse({"name": name, "ended": True})


@router.post("/test", summary="Try a bridge out", response_model=BridgeTested)
async def try_out(
    services: ServicesDep,
    caller: CallerDep,
    bridge: Annotated[dict[str, Any] | None, Body(description="The keys of a `[[bridge]]` table.")] = None,
    name: Annotated[str, Query(max_length=64, description="A bridge that is there, instead.")] = "",
) -> Response:
    """Connects to each address as another client, subscribes, and leaves."""
    caller.need_admin()
    view = bridges_of(services)
    if bridge is None and not name:
        raise Problem(400, "expected a bridge, or the name of one")
    asked = view.told(name) if bridge is None else bridge
    return JSONResponse({"addresses": await view.test(asked)})
