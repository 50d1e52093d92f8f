"""What the OpenAPI document says beside the operations themselves: how to log in, an example for each body, and what an
error looks like. The page `/docs` shows it, and programs that generate clients read it.
"""

from typing import Any

from fastapi import FastAPI

Json = dict[str, Any]

SCHEMES: Json = {
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "An API key with its secret, or a user of the broker with the password.",
    },
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token that `POST /api/v5/login` answers with."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "holdfast",
        "description": "What `POST /api/v1/login` sets, for pages in a browser.",
    },
}
OPEN = ("/healthz", "/readyz", "/api/v5/status", "/api/v1/login", "/api/v5/login", "/api/v1/whoami")

MESSAGE: Json = {"topic": "home/kitchen/temperature", "payload": "21.5", "qos": 1, "retain": True}
EMQX_MESSAGE: Json = {**MESSAGE, "payload_encoding": "plain", "properties": {"message_expiry_interval": 3600}}
LOGIN: Json = {"username": "admin", "password": "the password"}
BRIDGE: Json = {
    "name": "cloud",
    "address": ["mqtts://broker.example:8883"],
    "username": "site7",
    "password": "the password",
    "topic": ["sensors/# out 1", "commands/# in 1"],
}
BODIES: dict[tuple[str, str], object] = {
    ("post", "/api/v1/publish"): {**MESSAGE, "expiry_s": 3600, "user_properties": [["unit", "C"]]},
    ("post", "/api/v1/publish/batch"): [MESSAGE, {**MESSAGE, "topic": "home/hall/temperature", "payload": "19"}],
    ("post", "/api/v1/retained/restore"): {"filter": "home/#", "at_ms": 1_750_000_000_000, "dry_run": True},
    ("post", "/api/v1/login"): LOGIN,
    ("post", "/api/v5/login"): LOGIN,
    ("post", "/api/v5/publish"): EMQX_MESSAGE,
    ("post", "/api/v5/publish/bulk"): [EMQX_MESSAGE],
    ("put", "/api/v5/mqtt/retainer"): {"msg_expiry_interval": "30d", "max_payload_size": "1MB"},
    ("post", "/api/v1/bridges"): BRIDGE,
    ("post", "/api/v1/bridges/test"): BRIDGE,
    ("post", "/api/v5/banned"): {"as": "clientid", "who": "noisy-device", "reason": "publishes too much"},
}
PARAMETERS: Json = {
    "filter": "home/#",
    "topic": "home/kitchen/temperature",
    "prefix": "home",
    "clientid": "thermostat-1",
    "node": "holdfast",
}
ERRORS = {
    "4XX": (400, "Bad Request", "BAD_REQUEST", "filter 'a/#/b' is not a topic filter"),
    "401": (401, "Unauthorized", "UNAUTHORIZED", "log in first, or send an API key"),
    "403": (403, "Forbidden", "FORBIDDEN", "only an administrator may do this"),
    "404": (404, "Not Found", "NOT_FOUND", "topic 'home/hall' is not retained"),
    "422": (422, "Unprocessable Entity", "BAD_REQUEST", "topic: string should have at least 1 character"),
    "5XX": (503, "Service Unavailable", "SERVICE_UNAVAILABLE", "the journal cannot be written"),
}


def describe(app: FastAPI) -> None:
    """Makes the application's document the complete one. Call it when all operations are there."""
    plain = app.openapi

    def complete() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = completed(plain())
        return app.openapi_schema

    app.openapi = complete  # type: ignore[method-assign]


def completed(document: Json) -> Json:
    document["components"]["securitySchemes"] = SCHEMES
    document["security"] = [{name: []} for name in SCHEMES]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path in OPEN:
                operation["security"] = []
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None and (method, path) in BODIES:
                body["example"] = BODIES[method, path]
            for parameter in operation.get("parameters", []):
                if parameter["name"] in PARAMETERS:
                    parameter["example"] = PARAMETERS[parameter["name"]]
            add_errors(path, operation)
    return document


def add_errors(path: str, operation: Json) -> None:
    """An example for each error that is described, and the two that every operation behind a login has."""
    answers = operation["responses"]
    if path not in OPEN and "4XX" in answers:
        for status, text in (("401", "nobody is logged in"), ("403", "this user may not")):
            answers.setdefault(status, {**answers["4XX"], "description": text})
    for status, (number, title, code, detail) in ERRORS.items():
        for media, content in answers.get(status, {}).get("content", {}).items():
            if media == "application/problem+json":
                example = {"type": "about:blank", "title": title, "status": number, "detail": detail}
                content = {**content, "example": {**example, "code": code, "message": detail}}
                answers[status] = {**answers[status], "content": {media: content}}
