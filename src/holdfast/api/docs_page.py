"""`/docs`: the operations for people, made from the OpenAPI document by a page of our own.

The usual pages load their script from another host. This one has everything here.
"""

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

router = APIRouter()


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    from holdfast.api.app import STATIC

    return FileResponse(STATIC / "docs.html", headers={"Cache-Control": "no-cache"})
