"""The cluster that this broker is a node of, under `/api/v1/cluster`. A broker that stands alone says that it does."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from holdfast.api.models import ClusterStatus, NodeDrained, NodeRemoved, Verified
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, Services, ServicesDep
from holdfast.api.status import ClusterView

router = APIRouter(prefix="/api/v1/cluster", responses=RESPONSES, tags=["cluster"])

NodeName = Annotated[str, Query(min_length=1, max_length=255, description="The name of a node.")]

ALONE = {
    "alone": True,
    "name": "",
    "node": "",
    "ready": True,
    "state": "alone",
    "detail": "",
    "log": None,
    "position": 0,
    "lag": 0,
    "hash": "",
    "offset": 0,
    "clock_difference_ms": 0,
    "live_lost": 0,
    "nodes": [],
}


def cluster_of(services: Services) -> ClusterView:
    cluster = services.status.cluster
    if cluster is None:
        raise Problem(409, "this broker stands alone, expected a node of a cluster: see `holdfast serve --cluster`")
    return cluster


@router.get("", summary="How the cluster is doing", response_model=ClusterStatus)
async def status(services: ServicesDep) -> Response:
    """As the node sees it that is asked: who is there, how far each has read, and whether they have read the same."""
    cluster = services.status.cluster
    if cluster is None:
        return JSONResponse({**ALONE, "offset": services.status.broker.log.position})
    return JSONResponse({"alone": False, **cluster.status()})


@router.post("/drain", summary="Send the clients of a node to the others", response_model=NodeDrained)
async def drain(services: ServicesDep, caller: CallerDep, node: NodeName) -> Response:
    """The node accepts no clients until it is started again, and goes on reading the log."""
    caller.need_admin()
    await cluster_of(services).drain_node(node)
    return JSONResponse({"node": node, "drained": True})


@router.post("/remove", summary="Forget a node that will not come back", response_model=NodeRemoved)
async def remove(services: ServicesDep, caller: CallerDep, node: NodeName) -> Response:
    """It has to be stopped. Its clients' sessions stay, and can be taken up on any node."""
    caller.need_admin()
    await cluster_of(services).remove(node)
    return JSONResponse({"node": node, "removed": True})


@router.post("/verify", summary="Compare the state of all nodes", response_model=Verified)
async def verify(services: ServicesDep, caller: CallerDep) -> Response:
    """Each node works out a hash of its retained messages and sessions at the same position of the log."""
    caller.need_admin()
    hashes = await cluster_of(services).verify()
    missing = sorted(name for name, found in hashes.items() if not found)
    equal = not missing and len(set(hashes.values())) == 1
    return JSONResponse({"equal": equal, "hashes": hashes, "missing": missing})
