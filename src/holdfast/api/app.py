"""The application: operations, metrics, health, the dashboard's files, authentication in front of all of them, and the
service that puts it on listeners.
"""

import socket
import ssl
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api import bridges, cluster, live, operator, v1, v5
from holdfast.api.auth import ApiAuthenticator, AuthMiddleware
from holdfast.api.bodies import BoundedBodies
from holdfast.api.document import describe
from holdfast.api.listener import BACKLOG, HttpListener, Policy, Room
from holdfast.api.metrics import Metrics
from holdfast.api.problem import API_LOGIN_FAILED, HANDLERS, RESPONSES
from holdfast.api.services import Services, ServicesDep, make_services
from holdfast.api.static_files import StaticFiles
from holdfast.api.status import ServerStatus

SHOWN_OF_A_NAME = 2
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
    b"cross-origin-resource-policy": b"same-origin",
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


def make_app(services: Services, cors: list[str]) -> ASGIApp:
    app = FastAPI(
        title="Holdfast",
        summary="Retained messages and their history, clients, and the state of the broker.",
        version=services.status.version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        exception_handlers=dict(HANDLERS),  # type: ignore[arg-type]
    )
    app.state.services = services
    app.state.channels = live.Channels()
    app.state.metrics = Metrics(services.status, services.metrics_history)
    app.include_router(v1.router)
    app.include_router(operator.router)
    app.include_router(cluster.router)
    app.include_router(bridges.router)
    app.include_router(v5.router)
    app.include_router(live.router)
    add_health(app)
    add_pages(app)
    describe(app)
    limits = services.status.broker.settings
    bounded = BoundedBodies(app, limits.max_packet_size, limits.connect_timeout_ms / 1000)
    guarded: ASGIApp = AuthMiddleware(bounded, services.authenticator, cors)
    if cors:
        guarded = CORSMiddleware(guarded, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])
    return SecureHeaders(guarded)


def add_pages(app: FastAPI) -> None:
    """The dashboard, and the operations for people: a page of our own, because the usual ones load their script from
    another host.
    """
    files = StaticFiles(STATIC)

    @app.api_route("/static/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def static(request: Request, path: str) -> Response:
        return files.answer(path, request)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return files.file("index.html", request)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        return files.file("docs.html", request)


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
    async def readyz(services: ServicesDep) -> Response:
        """503 while the disk refuses; then QoS 1 and 2 publishes are refused as well. Of a node of a cluster also while
        it catches up, has no quorum, is drained or has failed. A history that waits for free space keeps nobody from
        working: it is named, with 200.
        """
        journal = services.status.journal
        if journal is not None and not journal.healthy:
            return JSONResponse({"status": "the journal cannot be written"}, 503)
        cluster = services.status.cluster
        if cluster is not None and cluster.not_ready:
            return JSONResponse({"status": cluster.not_ready}, 503)
        paused = {"history": "paused: free space is below history.reserve"} if services.status.paused else {}
        return JSONResponse({"status": "ready", **paused})


class HttpService:
    """API and dashboard as one thing that the server starts and stops, on any number of listeners."""

    def __init__(
        self, status: ServerStatus, authenticator: ApiAuthenticator, cors: list[str], max_connections: int
    ) -> None:
        self.authenticator = authenticator
        self.room = Room(status.broker, authenticator.bans, max_connections)
        self.head_s = status.broker.settings.connect_timeout_ms / 1000
        self.services = make_services(status, authenticator)
        self.app = make_app(self.services, cors)
        self.listeners: list[HttpListener] = []
        self.services.metrics_history.start()
        self.services.states.start()
        authenticator.on_failure = self.on_login_failed

    def listen(self, host: str, port: int, context: ssl.SSLContext | None, policy: Policy) -> tuple[str, int]:
        """Serve on an address; returns the host and port that it became. Raises OSError when it cannot be had."""
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        listener = HttpListener(self.app, context, policy, self.room, self.head_s)
        listener.start(sock)
        self.listeners.append(listener)
        name = sock.getsockname()
        return name[0], name[1]

    def on_login_failed(self, name: str, host: str) -> None:
        """People also type their password where their name should stand: of a name that nobody has, little is kept."""
        status = self.services.status
        known = status.configuration.users() if status.configuration is not None else []
        shown = name if not name or any(user["name"] == name for user in known) else f"{name[:SHOWN_OF_A_NAME]}***"
        status.on_denied(API_LOGIN_FAILED, shown, host, "")

    async def stop(self) -> None:
        self.services.metrics_history.stop()
        await self.services.states.stop()
        for listener in self.listeners:
            await listener.stop()
        await self.services.source.close()
        self.authenticator.stop()
