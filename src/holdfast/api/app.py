"""The application: operations, metrics, health, the dashboard's files, and the guard in front of all of them."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api import docs_page, live, v1, v5
from holdfast.api.guard import Guard
from holdfast.api.metrics import Metrics
from holdfast.api.parts import In, Parts
from holdfast.api.problem import HANDLERS, RESPONSES

STATIC = Path(__file__).parent.parent / "ui" / "static"
# Nothing but our own files may run or be loaded, and nobody may put the pages into a frame.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURE = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
}


class SecureHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in SECURE.items() if one[0] not in known)]
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


def make_app(parts: Parts, cors: list[str]) -> ASGIApp:
    app = FastAPI(
        title="Holdfast",
        summary="The broker's retained messages, their past, and what goes on around them.",
        version=parts.desk.version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        exception_handlers=dict(HANDLERS),  # type: ignore[arg-type]
    )
    app.state.parts = parts
    app.state.channels = 0
    app.state.metrics = Metrics(parts.desk, parts.series)
    app.include_router(v1.router)
    app.include_router(v5.router)
    app.include_router(live.router)
    app.include_router(docs_page.router)
    add_health(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    guarded: ASGIApp = Guard(app, parts.doorkeeper)
    if cors:
        guarded = CORSMiddleware(guarded, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])
    return SecureHeaders(guarded)


def add_health(app: FastAPI) -> None:
    @app.get(
        "/metrics",
        tags=["broker"],
        summary="Numbers for Prometheus",
        response_class=PlainTextResponse,
        responses=RESPONSES,
    )
    async def metrics() -> Response:
        return Response(app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/healthz", tags=["broker"], summary="Whether the process answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz", tags=["broker"], summary="Whether it can do its work", responses={503: {"model": dict[str, str]}}
    )
    async def readyz(parts: In) -> Response:
        """503 while the disk refuses; then QoS 1 and 2 publishes are refused as well."""
        journal = parts.desk.journal
        if journal is not None and not journal.healthy:
            return JSONResponse({"status": "the journal cannot be written"}, 503)
        return JSONResponse({"status": "ready"})
