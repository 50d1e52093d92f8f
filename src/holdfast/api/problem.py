"""What goes wrong, told as problem details (RFC 9457). EMQX's `code` and `message` stand beside, for scripts that know
those.
"""

from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from holdfast.errors import HoldfastError, NotAllowed, NotFound, ProtocolError, StoreError, TooLarge, UsageError

MEDIA_TYPE = "application/problem+json"
CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    409: "CONFLICT",
    410: "GONE",
    413: "TOO_LARGE",
    422: "BAD_REQUEST",
    429: "TOO_MANY_REQUESTS",
    503: "SERVICE_UNAVAILABLE",
}


class Details(BaseModel):
    """An RFC 9457 problem; `code` and `message` are there for clients written for EMQX."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str
    code: str
    message: str


API_LOGIN_FAILED = "API login failed"
API_REQUEST_DENIED = "API request denied"

# What every operation may answer with besides success.
RESPONSES: dict[int | str, dict[str, object]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": Details.model_json_schema()}}}
    for status, text in (("4XX", "refused, with the reason"), ("5XX", "cannot be answered now"), (422, "not valid"))
}


class Problem(Exception):
    """Raised by operations; answered with its status and details."""

    def __init__(self, status: int, detail: str, **more: object) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.more = more


def response(
    status: int, detail: str, more: dict[str, object] | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": CODES.get(status, "INTERNAL_ERROR"),
        "message": detail,
        **(more or {}),
    }
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return response(error.status, error.detail, error.more)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return response(error.status_code, str(error.detail).lower(), headers=dict(error.headers or {}))


async def on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [what_is_wrong(one) for one in error.errors()]
    return response(400 if request.url.path.startswith("/api/v5/") else 422, "; ".join(found), {"problems": found})


def what_is_wrong(one: dict[str, Any]) -> str:
    """What pydantic found, as a field and what was expected of it."""
    where = ".".join(str(part) for part in one["loc"] if part not in ("query", "body", "path"))
    if one["type"] == "json_invalid":
        return f"body: not JSON, {one['ctx']['error'].lower()} at character {where}"
    return f"{where or 'body'}: {one['msg'].lower().removeprefix('value error, ')}"


# The first that fits decides.
STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotFound, 404),
    (NotAllowed, 403),
    (TooLarge, 413),
    (UsageError, 400),
    (ProtocolError, 400),
    (StoreError, 503),
)


async def on_our_error(request: Request, error: Exception) -> Response:
    """Whose fault it was stands in the type."""
    if isinstance(error, NotAllowed):
        caller, host = request.state.caller, request.client.host if request.client is not None else ""
        name = caller.name if caller is not None else ""
        request.app.state.services.status.on_denied(API_REQUEST_DENIED, name, host, str(error))
    return response(next((status for kind, status in STATUSES if isinstance(error, kind)), 500), str(error))


HANDLERS = {
    Problem: on_problem,
    HTTPException: on_http_error,
    RequestValidationError: on_invalid,
    HoldfastError: on_our_error,
}
