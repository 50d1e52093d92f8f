"""Our own operations, under `/api/v1`. Each parses, calls one service, and answers."""

from dataclasses import asdict
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from holdfast.api.auth import COOKIE, LOGIN_S, address_of, token_of
from holdfast.api.bodies import LargeBodyRoute
from holdfast.api.metrics_history import STEPS
from holdfast.api.models import (
    ChangeCounts,
    ChangesBeside,
    Cleared,
    Count,
    DryRun,
    HistoryOf,
    HistoryRow,
    HygieneReport,
    MessagePage,
    Operations,
    Overview,
    Published,
    PublishedAll,
    Restored,
    RetainedAtPage,
    Span,
    TreeLevel,
    Usage,
    Who,
    Whole,
)
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, ServicesDep
from holdfast.errors import NotFound
from holdfast.protocol.mqtt.reasons import reason_name
from holdfast.service.caller import Caller
from holdfast.service.messages import decode_forwarded, row_of, summary_of, whole_of
from holdfast.service.past import Moment, has_wildcard
from holdfast.service.requests import (
    MAX_MS,
    Conditions,
    Publication,
    RestoreRequest,
    check_filter,
    check_moment,
    encode_text,
)
from holdfast.service.retained import Removed

router = APIRouter(prefix="/api/v1", responses=RESPONSES, route_class=LargeBodyRoute)

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries per page.")]
Topic = Annotated[str, Query(min_length=1, max_length=65535, description="A topic, without wildcards.")]
Filter = Annotated[str, Query(min_length=1, max_length=65535, description="A topic filter.")]
Prefix = Annotated[
    str | None, Query(max_length=65535, description="The parent level, without a trailing slash; omit it for the root.")
]
Days = Annotated[float, Query(ge=0, le=36500, description="How many days without a write count as long.")]
PAGE_BYTES = 4 << 20
AtMs = Annotated[int, Query(ge=0, le=MAX_MS, description="A moment, in milliseconds since 1970.")]


class ListQuery(Conditions):
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of messages per page.")
    payload: bool = Field(False, description="Whole messages instead of summaries; pages then also end at 4 MiB.")
    cursor: str = Field(
        "", max_length=100, description="`next` from the previous page; everything else is then ignored."
    )


class DeleteQuery(Conditions):
    filter: str = Field(min_length=1, max_length=65535, description="A topic filter.")
    dry_run: bool = Field(True, description="Only count, and hand out a token.")
    token: str = Field("", max_length=100, description="The token of a dry run with the same conditions.")

    def conditions(self) -> Conditions:
        return Conditions(**self.model_dump(exclude={"dry_run", "token"}))


@router.get("/retained", tags=["retained"], summary="List retained messages", response_model=MessagePage)
async def list_retained(services: ServicesDep, caller: CallerDep, asked: Annotated[ListQuery, Query()]) -> Response:
    """A page may be shorter than `limit`, even empty, when matches are rare; go on while there is a `next`."""
    most_bytes = PAGE_BYTES if asked.payload else 0
    shape = whole_of if asked.payload else summary_of
    if asked.cursor:
        found, following = await services.pages.next(asked.cursor, caller, asked.limit, most_bytes)
    else:
        found, following = await services.pages.first(asked, caller, asked.limit, most_bytes)
    version = services.source.last_change
    return JSONResponse({"messages": [shape(one, caller) for one in found], "next": following, "version": version})


@router.delete("/retained", tags=["retained"], summary="Delete by filter", response_model=DryRun | Cleared)
async def delete_retained(services: ServicesDep, caller: CallerDep, asked: Annotated[DeleteQuery, Query()]) -> Response:
    """First with `dry_run`, which counts and hands out a token; then with the token. 409 when the count has changed."""
    if asked.dry_run:
        return JSONResponse(await services.bulk_delete.dry_run(asked.conditions(), caller))
    return deleted(await services.bulk_delete.delete(asked.conditions(), caller, asked.token))


def deleted(removed: Removed) -> Response:
    return JSONResponse({"dry_run": False, "count": removed.count, "operation": removed.operation})


@router.get("/retained/message", tags=["retained"], summary="One retained message", response_model=HistoryRow | Whole)
async def get_message(services: ServicesDep, caller: CallerDep, topic: Topic, at_ms: AtMs = 0) -> Response:
    """As it is now, or as it was at a time."""
    if not at_ms:
        return JSONResponse(whole_of(services.retained.get(topic, caller), caller))
    caller.need_read(encode_text(topic))
    row = await services.history.find_at(Moment(at_ms), topic, caller)
    if row is None:
        raise NotFound(f"topic {topic!r} was not retained then")
    return JSONResponse(row_of(row, caller))


@router.get(
    "/retained/message/payload",
    tags=["retained"],
    summary="The payload of a retained message, as it is",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_payload(services: ServicesDep, caller: CallerDep, topic: Topic) -> Response:
    """Always as bytes to be saved, never to be shown as a page. What else is known stands in headers."""
    message = services.retained.get(topic, caller)
    publisher = caller.publisher_of(message)
    properties = decode_forwarded(message.properties)
    headers = {
        "Holdfast-Version": str(message.offset),
        "Holdfast-Qos": str(message.qos),
        "Holdfast-Stored-At-Ms": str(message.stored_at_ms),
        "Holdfast-Client-Id": header_text(publisher.client_id),
        "Holdfast-Username": header_text(publisher.username),
        "Holdfast-Content-Type": header_text(properties.content_type or ""),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{message.offset}"',
    }
    if message.expires_at_ms:
        headers["Holdfast-Expires-At-Ms"] = str(message.expires_at_ms)
    return Response(message.payload, media_type="application/octet-stream", headers=headers)


@router.delete("/retained/message", tags=["retained"], summary="Delete one message", response_model=Cleared)
async def delete_message(services: ServicesDep, caller: CallerDep, topic: Topic) -> Response:
    return deleted(await services.retained.remove_topic(topic, caller))


@router.get("/operations", tags=["retained"], summary="What was done through the API", response_model=Operations)
async def operations(
    services: ServicesDep,
    caller: CallerDep,
    before: Annotated[int, Query(ge=0, le=2**62, description="`next` from the previous page.")] = 0,
    limit: Limit = 50,
) -> Response:
    """Newest first, as far as the history reaches. Administrators see everybody's, others their own."""
    found, following = await services.history.operations(before, limit, caller)
    return JSONResponse({"operations": found, "next": following})


@router.post("/operations/{operation}/undo", tags=["retained"], summary="Undo an operation", response_model=Restored)
async def undo(
    services: ServicesDep,
    caller: CallerDep,
    operation: str,
    dry_run: Annotated[bool, Query(description="Only say what would be done.")] = False,
) -> Response:
    """Brings back what it deleted or replaced, and deletes what it brought, except where something new has been set
    since.
    """
    return JSONResponse(asdict(await services.retained.undo(operation, caller, dry_run)))


@router.get("/retained/count", tags=["retained"], summary="How many messages match", response_model=Count)
async def count(services: ServicesDep, caller: CallerDep, asked: Annotated[Conditions, Query()]) -> Response:
    """All of them are looked at, which takes a second or so for a million."""
    found = size = 0
    async for portion in services.retained.find(asked, caller):
        found += len(portion)
        size += sum(message.size() for message in portion)
    return JSONResponse({"count": found, "bytes": size})


@router.get("/retained/usage", tags=["retained"], summary="Messages and bytes of a subtree", response_model=Usage)
async def usage(services: ServicesDep, caller: CallerDep, prefix: Prefix = None, at_ms: AtMs = 0) -> Response:
    """As far as the caller may see them, now or at a time."""
    encode_text(prefix or "")
    if not at_ms:
        return JSONResponse(await services.tree.usage(prefix, caller))
    found, size = await services.history.usage_at(Moment(at_ms, topic_filter=""), prefix, caller)
    return JSONResponse({"prefix": prefix, "count": found, "bytes": size})


@router.get("/tree", tags=["retained"], summary="One level of the topic tree", response_model=TreeLevel)
async def tree(
    services: ServicesDep,
    caller: CallerDep,
    prefix: Prefix = None,
    after: Annotated[str, Query(max_length=65535, description="`next` from the previous page.")] = "",
    limit: Limit = 200,
    at_ms: AtMs = 0,
) -> Response:
    """As far as the caller may see it. `count` and `bytes` are null where counting would take too long; ask
    `/retained/usage` for those.
    """
    encode_text(prefix or "")
    behind = services.cursors.open("tree", caller, after)
    if at_ms:
        moment = Moment(at_ms, topic_filter="")
        level = await services.history.children_at(moment, prefix, behind, limit, caller)
    else:
        level = await services.tree.children(prefix, behind, limit, caller)
    return JSONResponse({**level, "next": services.cursors.seal("tree", caller, level["next"])})


@router.get("/history", tags=["history"], summary="What happened to a topic", response_model=HistoryOf)
async def history(
    services: ServicesDep,
    caller: CallerDep,
    topic: Topic,
    before: Annotated[int, Query(ge=0, le=2**62, description="Only offsets below this one.")] = 0,
    limit: Limit = 100,
    to_ms: Annotated[int, Query(ge=0, le=MAX_MS, description="Only up to this moment; 0 is now.")] = 0,
) -> Response:
    """Newest first, live messages and refusals included; fewer than `limit` where they are large. `next` is `before` of
    the next page.
    """
    caller.need_read(encode_text(topic))
    return JSONResponse(await services.history.of_topic(topic, before, limit, caller, to_ms))


OneOrAll = Annotated[
    str,
    Query(
        max_length=65535, description="Only this topic; without it all topics, which only administrators may ask for."
    ),
]


@router.get("/history/changes", tags=["history"], summary="When something changed", response_model=ChangeCounts)
async def changes(
    services: ServicesDep,
    caller: CallerDep,
    from_ms: AtMs,
    to_ms: AtMs,
    topic: OneOrAll = "",
    parts: Annotated[int, Query(ge=1, le=1000, description="Number of equal parts to divide that time into.")] = 100,
) -> Response:
    """How many retained messages were set or deleted in each part of a time."""
    need_changes(caller, topic)
    counts = await services.history.change_counts(from_ms, to_ms, topic, parts)
    return JSONResponse({"from_ms": from_ms, "to_ms": to_ms, "counts": counts})


@router.get("/history/beside", tags=["history"], summary="The changes beside a moment", response_model=ChangesBeside)
async def beside(services: ServicesDep, caller: CallerDep, at_ms: AtMs, topic: OneOrAll = "") -> Response:
    """The last change before a moment, and the first after it."""
    need_changes(caller, topic)
    before_ms, after_ms = await services.history.changes_beside(at_ms, topic)
    return JSONResponse({"before_ms": before_ms, "after_ms": after_ms})


def need_changes(caller: Caller, topic: str) -> None:
    """Raises NotAllowed for who may not know when the topic changed, or any topic when it is empty."""
    if topic:
        caller.need_read(encode_text(topic))
    else:
        caller.need_whole_view()


@router.get("/history/span", tags=["history"], summary="How far back the history reaches", response_model=Span)
async def span(services: ServicesDep, caller: CallerDep) -> Response:
    """Where the table lies is told to those who may do everything."""
    found = await services.history.span()
    return JSONResponse(found if caller.admin else {**found, "uri": ""})


@router.get("/retained/at", tags=["history"], summary="The retained set as it was", response_model=RetainedAtPage)
async def retained_at(
    services: ServicesDep,
    caller: CallerDep,
    at_ms: AtMs = 0,
    offset: Annotated[int, Query(ge=0, le=2**62, description="After the publish with this offset.")] = 0,
    filter: Filter = "#",
    after: Annotated[str, Query(max_length=65535, description="`next` from the previous page.")] = "",
    limit: Limit = 100,
    search: Annotated[str, Query(max_length=1000, description="As in `/retained`.")] = "",
    hidden: Annotated[bool, Query(description="With the filter `#`: also topics that begin with `$`.")] = False,
) -> Response:
    """What a new subscriber would have been sent at that time, or just after that offset, by the rights of today. A
    page ends at 4 MiB too, and may be short, even empty; go on while there is a `next`.
    """
    check_filter(filter)
    check_moment(at_ms, offset)
    if not has_wildcard(filter) and not search:
        row = await services.history.find_at(Moment(at_ms, offset), filter, caller)
        one = [] if row is None else [row_of(row, caller)]
        return JSONResponse({"total": len(one), "messages": one, "next": None})
    behind = services.cursors.open("at", caller, after)
    encode_text(search)
    moment = Moment(at_ms, offset, "" if hidden and filter == "#" else filter, search, caller.admin)
    rows, following, total = await services.history.page_at(moment, behind, limit, caller)
    shown = [row_of(row, caller) for row in rows]
    return JSONResponse({"total": total, "messages": shown, "next": services.cursors.seal("at", caller, following)})


@router.post("/retained/restore", tags=["history"], summary="Bring back what was retained", response_model=Restored)
async def restore(services: ServicesDep, caller: CallerDep, asked: RestoreRequest) -> Response:
    return JSONResponse(asdict(await services.retained.restore(asked, caller)))


@router.post("/publish", tags=["messages"], summary="Publish a message", response_model=Published)
async def publish(services: ServicesDep, caller: CallerDep, asked: Publication) -> Response:
    """Answered when the message is durable. An empty payload with `retain` deletes what is retained."""
    services.admit(caller, [asked])
    [accepted] = (await services.retained.publish([asked], caller)).accepted
    reason = accepted.reason
    return JSONResponse({"version": accepted.offset, "reason": reason, "reason_name": reason_name(reason)})


@router.post("/publish/batch", tags=["messages"], summary="Publish many messages", response_model=PublishedAll)
async def publish_batch(
    services: ServicesDep, caller: CallerDep, asked: Annotated[list[Publication], Body(min_length=1, max_length=1000)]
) -> Response:
    """In order, as one operation, answered when all are durable. One that is not valid stops those after it."""
    services.admit(caller, asked)
    done = await services.retained.publish(asked, caller)
    body = {"operation": done.operation, "count": len(asked), "refused": done.refused}
    return JSONResponse({**body, "version": done.accepted[-1].offset})


@router.get("/hygiene", tags=["retained"], summary="What is worth a look", response_model=HygieneReport)
async def hygiene(
    services: ServicesDep,
    caller: CallerDep,
    days: Days = 30,
    expiring_s: Annotated[float, Query(ge=0, le=1e9, description="How many seconds ahead count as soon.")] = 3600,
    depth: Annotated[int, Query(ge=1, le=16, description="Levels of the subtrees that are counted.")] = 2,
    limit: Limit = 50,
) -> Response:
    """Messages not written for long, absent publishers, discovery without state, large subtrees, kept commands,
    messages about to expire.
    """
    caller.need_whole_view()
    return JSONResponse(await services.hygiene.report(days, limit, expiring_s, depth, caller))


@router.get("/overview", tags=["broker"], summary="How the broker is doing", response_model=Overview)
async def overview(
    services: ServicesDep,
    points: Annotated[int, Query(ge=0, le=1440, description="Maximum number of samples; the latest are returned.")] = 0,
    step_s: Annotated[int, Query(ge=1, le=60, description="Seconds between two samples: 1, 10 or 60.")] = 1,
) -> Response:
    if step_s not in STEPS:
        raise Problem(400, f"expected step_s to be one of {', '.join(map(str, STEPS))}, got {step_s}")
    return JSONResponse(services.metrics_history.overview(points, step_s))


class Credentials(BaseModel):
    username: str = Field(max_length=1000)
    password: str = Field(max_length=1000)


@router.get("/whoami", tags=["broker"], summary="Who I am to the API", response_model=Who)
async def whoami(request: Request, services: ServicesDep) -> Response:
    caller: Caller | None = request.state.caller
    known = caller is not None
    return JSONResponse(
        {
            "known": known,
            "name": caller.name if caller is not None else None,
            "admin": caller is not None and caller.admin,
            "sees_all": caller is not None and caller.sees_all,
            "login": not services.authenticator.is_open,
        }
    )


@router.post("/login", tags=["broker"], summary="Log in with a cookie", response_model=Who)
async def login(request: Request, services: ServicesDep, given: Credentials) -> Response:
    if services.authenticator.is_open:
        raise Problem(409, "nobody needs to log in here: neither keys nor users are configured")
    caller = await services.authenticator.check(given.username, encode_text(given.password), address_of(request))
    if caller is None:
        raise Problem(401, "user name or password is wrong")
    known = {"known": True, "name": caller.name, "admin": caller.admin, "sees_all": caller.sees_all, "login": True}
    answer = JSONResponse(known)
    token = services.authenticator.log_in(caller)
    answer.set_cookie(
        COOKIE, token, LOGIN_S, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )
    return answer


@router.post("/logout", tags=["broker"], summary="End the login", status_code=204, response_class=Response)
async def logout(request: Request, services: ServicesDep) -> Response:
    """Of the cookie, or of the bearer token that was sent."""
    services.authenticator.log_out(token_of(request))
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def header_text(text: str) -> str:
    """Any text as a header can carry it."""
    return quote(text, safe=" /:@+=,;()[]{}<>!$&'*~.-_")
