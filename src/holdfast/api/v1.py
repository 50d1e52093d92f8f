"""Our own operations, under `/api/v1`. Each parses, calls one part, and answers."""

import base64
import binascii
from bisect import bisect_right
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.desk import PROTOCOL, check_topic_name, new_operation
from holdfast.api.guard import COOKIE, LOGIN_S, Caller, address_of
from holdfast.api.listing import check_filter
from holdfast.api.message import Whole, forwarded_of, properties_of, summary_of, whole_of
from holdfast.api.models import (
    Cleared,
    HistoryOf,
    HistoryRow,
    HygieneReport,
    MessagePage,
    MomentPage,
    Overview,
    Published,
    PublishedAll,
    Rehearsal,
    Restored,
    Span,
    TreeLevel,
    Usage,
    Who,
)
from holdfast.api.parts import By, In, Parts
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.rows import whole_row
from holdfast.broker.message import Message, Publisher
from holdfast.broker.publishing import Accepted
from holdfast.broker.views import Query as Wanted
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import reason_name

router = APIRouter(prefix="/api/v1", responses=RESPONSES)

Limit = Annotated[int, Query(ge=1, le=1000, description="Entries on a page at most.")]
Topic = Annotated[str, Query(min_length=1, max_length=65535, description="A topic, without wildcards.")]
Filter = Annotated[str, Query(min_length=1, max_length=65535, description="A topic filter.")]
Prefix = Annotated[
    str | None, Query(max_length=65535, description="Levels above the wanted ones, without the last slash; none: root.")
]
Days = Annotated[float, Query(ge=0, le=36500, description="How long ago counts as long ago, in days.")]
PAGE_BYTES = 4 << 20
MAX_MS = 253_402_300_799_000  # the end of the year 9999
AtMs = Annotated[int, Query(ge=0, le=MAX_MS, description="A moment, in milliseconds since 1970.")]


class Criteria(BaseModel):
    """Which retained messages: all given conditions must hold."""

    model_config = ConfigDict(extra="forbid")

    filter: str = Field("#", min_length=1, max_length=65535, description="A topic filter.")
    contains: str = Field("", max_length=65535, description="Part of the topic.")
    client_id: str = Field("", max_length=65535, description="Client id of the publisher.")
    username: str = Field("", max_length=65535, description="User name of the publisher.")
    min_size: int = Field(-1, ge=-1, description="Least bytes of payload; -1 is any.")
    max_size: int = Field(-1, ge=-1, description="Most bytes of payload; -1 is any.")
    older_than: float = Field(-1, ge=-1, le=1e10, description="Set at least so many seconds ago; -1 is any.")
    newer_than: float = Field(-1, ge=-1, le=1e10, description="Set at most so many seconds ago; -1 is any.")
    hidden: bool = Field(
        False, description="With the filter `#`: also topics that begin with `$`, which wildcards leave out."
    )

    def query(self, now_ms: int) -> Wanted:
        check_filter(self.filter)
        wanted = Wanted()
        wanted.contains = encoded(self.contains)
        wanted.client_id = self.client_id
        wanted.username = self.username
        wanted.min_size = self.min_size
        wanted.max_size = self.max_size
        if self.older_than >= 0:
            wanted.stored_before_ms = now_ms - int(self.older_than * 1000)
        if self.newer_than >= 0:
            wanted.stored_after_ms = now_ms - int(self.newer_than * 1000)
        wanted.hidden = self.hidden
        return wanted

    def asked(self) -> str:
        return self.model_dump_json()


class Listed(Criteria):
    limit: int = Field(100, ge=1, le=1000, description="Messages on a page at most.")
    payload: bool = Field(False, description="Whole messages instead of summaries; then pages end at 4 MiB too.")
    cursor: str = Field("", max_length=100, description="`next` of the page before; then the rest is ignored.")


class Removed(Criteria):
    filter: str = Field(min_length=1, max_length=65535, description="A topic filter.")
    dry_run: bool = Field(True, description="Only count, and hand out a token.")
    token: str = Field("", max_length=100, description="The token of a dry run with the same conditions.")


def encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Problem(400, "text has a lone surrogate, expected characters that UTF-8 can hold") from None


def readable(topic: str, caller: Caller) -> bytes:
    name = encoded(topic)
    if not caller.may_read(name):
        raise Problem(403, f"user {caller.name!r} may not read topic {topic!r}")
    return name


def visible(parts: Parts, topic: str, caller: Caller) -> Message:
    """A retained message that this caller would be sent: what its publisher has lost the right to is not there."""
    message = parts.desk.get(readable(topic, caller))
    if not caller.may_see(message):
        raise Problem(404, f"topic {topic!r} is not retained")
    return message


@router.get("/retained", tags=["retained"], summary="List retained messages", response_model=MessagePage)
async def list_retained(parts: In, caller: By, asked: Annotated[Listed, Query()]) -> Response:
    """A page may be shorter than `limit`, even empty, when matches are rare; go on while there is a `next`."""
    most_bytes = PAGE_BYTES if asked.payload else 0
    shape = whole_of if asked.payload else summary_of
    if asked.cursor:
        found, following = await parts.walks.next(asked.cursor, caller, asked.limit, most_bytes)
    else:
        query = asked.query(parts.desk.now_ms())
        found, following = await parts.walks.first(asked.filter, query, caller, asked.limit, most_bytes)
    version = parts.desk.broker.retained.version
    return JSONResponse({"messages": [shape(one) for one in found], "next": following, "version": version})


@router.delete("/retained", tags=["retained"], summary="Delete by filter", response_model=Rehearsal | Cleared)
async def delete_retained(parts: In, caller: By, asked: Annotated[Removed, Query()]) -> Response:
    """First with `dry_run`, which counts and hands out a token; then with the token. 409 when the count has changed."""
    conditions = Criteria(**asked.model_dump(exclude={"dry_run", "token"})).asked() + caller.name
    query = asked.query(parts.desk.now_ms())
    if asked.dry_run:
        return JSONResponse(await parts.removal.rehearse(asked.filter, query, caller, conditions))
    return JSONResponse(await parts.removal.carry_out(asked.filter, query, caller, conditions, asked.token))


@router.get("/retained/message", tags=["retained"], summary="One retained message", response_model=HistoryRow | Whole)
async def get_message(parts: In, caller: By, topic: Topic, at_ms: AtMs = 0) -> Response:
    """As it is now, or as it was at a time."""
    if not at_ms:
        return JSONResponse(whole_of(visible(parts, topic, caller)))
    readable(topic, caller)
    row = (await parts.past.at(at_ms, 0, "#")).find(topic)
    if row is None:
        raise Problem(404, f"topic {topic!r} was not retained then")
    return JSONResponse(whole_row(row))


@router.get(
    "/retained/message/payload",
    tags=["retained"],
    summary="The payload of a retained message, as it is",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_payload(parts: In, caller: By, topic: Topic) -> Response:
    """Always as bytes to be saved, never to be shown as a page. What else is known stands in headers."""
    message = visible(parts, topic, caller)
    properties = properties_of(message.properties)
    headers = {
        "Holdfast-Version": str(message.offset),
        "Holdfast-Qos": str(message.qos),
        "Holdfast-Stored-At-Ms": str(message.stored_at_ms),
        "Holdfast-Client-Id": header_text(message.publisher.client_id),
        "Holdfast-Username": header_text(message.publisher.username),
        "Holdfast-Content-Type": header_text(properties.content_type or ""),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{message.offset}"',
    }
    if message.expires_at_ms:
        headers["Holdfast-Expires-At-Ms"] = str(message.expires_at_ms)
    return Response(message.payload, media_type="application/octet-stream", headers=headers)


@router.delete("/retained/message", tags=["retained"], summary="Delete one message", response_model=Cleared)
async def delete_message(parts: In, caller: By, topic: Topic) -> Response:
    name = encoded(topic)
    if not caller.may_write(name, True):
        raise Problem(403, f"user {caller.name!r} may not write to topic {topic!r}")
    return JSONResponse(await parts.removal.remove([parts.desk.get(name)], caller))


@router.post("/operations/{operation}/undo", tags=["retained"], summary="Undo a delete", response_model=Restored)
async def undo(parts: In, caller: By, operation: str) -> Response:
    """Brings back what a delete took away, except where something new has been set since."""
    return JSONResponse(await parts.removal.undo(operation, caller))


@router.get("/retained/usage", tags=["retained"], summary="Messages and bytes of a subtree", response_model=Usage)
async def usage(parts: In, caller: By, prefix: Prefix = None) -> Response:
    need_whole_view(caller)
    encoded(prefix or "")
    return JSONResponse(await parts.tree.usage(prefix))


@router.get("/tree", tags=["retained"], summary="One level of the topic tree", response_model=TreeLevel)
async def tree(
    parts: In,
    caller: By,
    prefix: Prefix = None,
    after: Annotated[str, Query(max_length=65535, description="`next` of the page before.")] = "",
    limit: Limit = 200,
    at_ms: AtMs = 0,
) -> Response:
    """`count` and `bytes` are null where counting would take too long; ask `/retained/usage` for those."""
    need_whole_view(caller)
    encoded(after + (prefix or ""))
    if at_ms:
        moment = await parts.past.at(at_ms, 0, "#")
        return JSONResponse(moment.children(prefix, after, limit))
    return JSONResponse(await parts.tree.children(prefix, after, limit))


@router.get("/history", tags=["history"], summary="What happened to a topic", response_model=HistoryOf)
async def history(
    parts: In,
    caller: By,
    topic: Topic,
    before: Annotated[int, Query(ge=0, le=2**62, description="Only offsets below this one.")] = 0,
    limit: Limit = 100,
) -> Response:
    """Newest first, live messages and refusals included."""
    readable(topic, caller)
    return JSONResponse(await parts.past.of_topic(topic, before, limit))


@router.get("/history/span", tags=["history"], summary="How far back the history reaches", response_model=Span)
async def span(parts: In, caller: By) -> Response:
    """Where the table lies is told to those who may do everything."""
    found = await parts.past.span()
    return JSONResponse(found if caller.admin else {**found, "uri": ""})


@router.get("/retained/at", tags=["history"], summary="The retained set as it was", response_model=MomentPage)
async def retained_at(
    parts: In,
    caller: By,
    at_ms: AtMs = 0,
    offset: Annotated[int, Query(ge=0, le=2**62, description="After the publish with this offset.")] = 0,
    filter: Filter = "#",
    after: Annotated[str, Query(max_length=65535, description="`next` of the page before.")] = "",
    limit: Limit = 100,
) -> Response:
    """What a new subscriber would have been sent at that time, or just after that offset."""
    check_filter(filter)
    encoded(after)
    if (at_ms == 0) == (offset == 0):
        raise Problem(400, "expected one of at_ms and offset")
    if "#" not in filter and "+" not in filter:
        # One topic: the whole moment may be at hand already.
        row = (await parts.past.at(at_ms, offset, "#")).find(filter)
        one = [whole_row(row)] if row is not None and caller.may_read(filter.encode()) else []
        return JSONResponse({"total": len(one), "messages": one, "next": None})
    moment = await parts.past.at(at_ms, offset, filter)
    start = 0
    if after:
        start = bisect_right(moment.topics, after)
    rows = [moment.row(number) for number in range(start, min(start + limit, len(moment.topics)))]
    more = start + limit < len(moment.topics)
    shown = [whole_row(row) for row in rows if caller.may_read(row["topic"].encode())]
    total = len(moment.topics) if caller.sees_all else None
    return JSONResponse({"total": total, "messages": shown, "next": rows[-1]["topic"] if more else None})


class Restoring(BaseModel):
    model_config = ConfigDict(extra="forbid")

    filter: str = Field(min_length=1, max_length=65535)
    at_ms: int = Field(0, ge=0, le=MAX_MS)
    offset: int = Field(0, ge=0, le=2**62)
    replace: bool = Field(False, description="Also where something else is retained now.")
    dry_run: bool = Field(True, description="Only say what would be done.")


@router.post("/retained/restore", tags=["history"], summary="Bring back what was retained", response_model=Restored)
async def restore(parts: In, caller: By, asked: Restoring) -> Response:
    check_filter(asked.filter)
    if (asked.at_ms == 0) == (asked.offset == 0):
        raise Problem(400, "expected one of at_ms and offset")
    moment = await parts.past.at(asked.at_ms or parts.desk.now_ms(), asked.offset, asked.filter)
    rows = [row for row in moment.rows.to_pylist() if caller.may_read(row["topic"].encode())]
    return JSONResponse(await parts.removal.bring_back(rows, caller, asked.replace, asked.dry_run))


class Publication(BaseModel):
    """A message to publish. `payload` is text, or base64 when `encoding` says so."""

    model_config = ConfigDict(extra="forbid")

    topic: str = Field(min_length=1, max_length=65535)
    payload: str = ""
    encoding: Literal["text", "base64"] = "text"
    qos: int = Field(0, ge=0, le=2)
    retain: bool = False
    expiry_s: int | None = Field(None, ge=0, le=2**32 - 1)
    content_type: str | None = Field(None, max_length=65535)
    response_topic: str | None = Field(None, min_length=1, max_length=65535)
    correlation_data: str | None = Field(None, description="base64", max_length=80000)
    payload_format: int | None = Field(None, ge=0, le=1)
    user_properties: list[tuple[str, str]] = Field([], max_length=100)


@router.post("/publish", tags=["messages"], summary="Publish a message", response_model=Published)
async def publish(parts: In, caller: By, asked: Publication) -> Response:
    """Answered when the message is durable. An empty payload with `retain` deletes what is retained."""
    accepted = publish_one(parts, caller, asked, new_operation(caller.admin))
    await parts.desk.settle()
    reason = accepted.reason
    return JSONResponse({"version": accepted.offset, "reason": reason, "reason_name": reason_name(reason)})


@router.post("/publish/batch", tags=["messages"], summary="Publish many messages", response_model=PublishedAll)
async def publish_batch(
    parts: In, caller: By, asked: Annotated[list[Publication], Body(min_length=1, max_length=1000)]
) -> Response:
    """In order, as one operation, answered when all are durable. One that is not valid stops those after it."""
    operation = new_operation(caller.admin)
    refused = version = 0
    try:
        for one in asked:
            accepted = publish_one(parts, caller, one, operation)
            refused += accepted.reason >= 0x80
            version = accepted.offset
    finally:
        await parts.desk.settle()
    return JSONResponse({"operation": operation, "count": len(asked), "refused": refused, "version": version})


def publish_one(parts: Parts, caller: Caller, asked: Publication, client_id: str) -> Accepted:
    topic = encoded(asked.topic)
    check_topic_name(topic)
    if not caller.may_write(topic, asked.retain):
        raise Problem(403, f"user {caller.name!r} may not write to topic {asked.topic!r}")
    payload = from_base64(asked.payload) if asked.encoding == "base64" else encoded(asked.payload)
    if len(payload) > parts.desk.broker.settings.max_packet_size:
        raise Problem(413, f"payload has {len(payload)} bytes, expected no more than limits.max_packet_size")
    properties = Properties()
    properties.payload_format = asked.payload_format
    properties.content_type = checked(asked.content_type)
    properties.response_topic = None if asked.response_topic is None else encoded(checked(asked.response_topic) or "")
    if asked.correlation_data is not None:
        properties.correlation_data = from_base64(asked.correlation_data)
    if asked.user_properties:
        properties.user_properties = [
            (checked(key) or "", checked(value) or "") for key, value in asked.user_properties
        ]
    expiry_s = -1 if asked.expiry_s is None else asked.expiry_s
    publisher = Publisher(client_id, caller.name, PROTOCOL)
    data = forwarded_of(properties)
    return parts.desk.publish(publisher, topic, payload, asked.qos, asked.retain, data, expiry_s)


def checked(text: str | None) -> str | None:
    """Text as a packet can carry it."""
    if text is not None and ("\0" in text or len(encoded(text)) > 65535):
        raise Problem(400, "a property has a NUL or is too long, expected text of up to 65535 bytes")
    return text


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(400, "payload is not base64, expected it because of its encoding") from None


@router.get("/hygiene", tags=["retained"], summary="What is worth a look", response_model=HygieneReport)
async def hygiene(
    parts: In,
    caller: By,
    days: Days = 30,
    expiring_s: Annotated[float, Query(ge=0, le=1e9, description="What counts as soon, for expiry.")] = 3600,
    depth: Annotated[int, Query(ge=1, le=16, description="Levels of the subtrees that are counted.")] = 2,
    limit: Limit = 50,
) -> Response:
    """Messages not written for long, absent publishers, discovery without state, large subtrees, kept commands,
    messages about to expire.
    """
    need_whole_view(caller)
    return JSONResponse(await parts.hygiene.report(days, expiring_s, depth, limit))


@router.get("/overview", tags=["broker"], summary="How the broker is doing", response_model=Overview)
async def overview(
    parts: In, points: Annotated[int, Query(ge=0, le=900, description="Samples of the last seconds.")] = 0
) -> Response:
    return JSONResponse(parts.series.overview(points))


class Credentials(BaseModel):
    username: str = Field(max_length=1000)
    password: str = Field(max_length=1000)


@router.get("/whoami", tags=["broker"], summary="Who I am to the API", response_model=Who)
async def whoami(request: Request, parts: In) -> Response:
    caller: Caller | None = request.state.caller
    known = caller is not None
    return JSONResponse(
        {
            "known": known,
            "name": caller.name if caller is not None else None,
            "admin": caller is not None and caller.admin,
            "login": not parts.doorkeeper.is_open,
        }
    )


@router.post("/login", tags=["broker"], summary="Log in with a cookie", response_model=Who)
async def login(request: Request, parts: In, given: Credentials) -> Response:
    if parts.doorkeeper.is_open:
        raise Problem(409, "nobody needs to log in here: neither keys nor users are configured")
    caller = await parts.doorkeeper.check(given.username, encoded(given.password), address_of(request))
    if caller is None:
        raise Problem(401, "user name or password is wrong")
    answer = JSONResponse({"known": True, "name": caller.name, "admin": caller.admin, "login": True})
    token = parts.doorkeeper.log_in(caller)
    answer.set_cookie(
        COOKIE, token, LOGIN_S, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )
    return answer


@router.post("/logout", tags=["broker"], summary="End the login", status_code=204, response_class=Response)
async def logout(request: Request, parts: In) -> Response:
    parts.doorkeeper.log_out(request.cookies.get(COOKIE, ""))
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def need_whole_view(caller: Caller) -> None:
    """For answers about all topics together, which cannot be cut down to what one may read."""
    if not caller.sees_all:
        caller.need_admin()


def header_text(text: str) -> str:
    """Any text as a header can carry it."""
    return quote(text, safe=" /:@+=,;()[]{}<>!$&'*~.-_")
