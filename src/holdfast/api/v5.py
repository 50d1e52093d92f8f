"""EMQX's operations, under `/api/v5`, with its paths, parameters and field names, so that scripts made for it work.

Only what has a meaning here is taken; what EMQX would ignore is ignored, what it would refuse is refused.
"""

import asyncio
import base64
from itertools import groupby, islice
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from holdfast import quantity
from holdfast.api.auth import address_of, token_of
from holdfast.api.bodies import LargeBodyRoute
from holdfast.api.models import (
    EmqxClient,
    EmqxClients,
    EmqxMessages,
    EmqxPublished,
    EmqxSubscription,
    EmqxSubscriptions,
    EmqxWhole,
    Token,
)
from holdfast.api.problem import RESPONSES, Problem
from holdfast.api.services import CallerDep, Services, ServicesDep
from holdfast.api.v1 import Credentials
from holdfast.api.v5_node import NODE, page_of
from holdfast.api.v5_node import router as node_router
from holdfast.broker.effects import Accepted
from holdfast.broker.message import Message
from holdfast.broker.session import Session, Subscription
from holdfast.broker.topics import check_topic, matches
from holdfast.errors import NotFound, TooLarge
from holdfast.protocol.mqtt.reasons import ADMINISTRATIVE_ACTION, NO_MATCHING_SUBSCRIBERS, reason_name
from holdfast.service.caller import Caller
from holdfast.service.messages import iso
from holdfast.service.requests import Publication, check_filter, conditions_from, encode_text, topic_bytes

router = APIRouter(prefix="/api/v5", responses=RESPONSES, route_class=LargeBodyRoute, tags=["EMQX"])

Page = Annotated[int, Query(ge=1, le=10**9)]
BULK_MOST = 10_000
Limit = Annotated[int, Query(ge=1, le=10_000)]
Filter = Annotated[str | None, Query(min_length=1, max_length=65535)]
TopicPath = Annotated[str, Path(min_length=1, max_length=65535)]


def message_id(message: Message) -> str:
    """EMQX's ids are 128 bits in hexadecimal; ours are offsets."""
    return f"{message.offset:032X}"


def shape(message: Message, caller: Caller) -> dict[str, object]:
    publisher = caller.publisher_of(message)
    return {
        "msgid": message_id(message),
        "topic": message.topic.decode(),
        "qos": message.qos,
        "publish_at": iso(message.stored_at_ms),
        "from_clientid": publisher.client_id,
        "from_username": publisher.username,
    }


@router.get("/mqtt/retainer", summary="Settings of the retainer")
async def get_retainer(services: ServicesDep) -> dict[str, Any]:
    settings = services.handle.broker.settings
    return {
        "enable": settings.retain_available,
        "msg_expiry_interval": f"{settings.retained_expiry_ms // 1000}s",
        "msg_clear_interval": "0s",
        "max_payload_size": f"{settings.max_retained_payload}B",
        "stop_publish_clear_msg": False,
        "backend": {
            "type": "built_in_database",
            "storage_type": services.status.storage_type,
            "max_retained_messages": settings.max_retained_messages,
        },
    }


class Backend(BaseModel):
    model_config = ConfigDict(extra="ignore")

    max_retained_messages: int | None = Field(None, ge=0, le=2**62)


# EMQX counts sizes in powers of two, whatever the unit.
SIZE_UNITS = {**quantity.SIZE_UNITS, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}
QUANTITY_MOST = 10**15


def size_of(value: object) -> int:
    return bounded(quantity.parse_size(value, units=SIZE_UNITS), value)


def expiry_ms_of(value: object) -> int:
    return bounded(quantity.milliseconds(quantity.parse_duration(value)), value)


def bounded(number: int, value: object) -> int:
    if number > QUANTITY_MOST:
        raise ValueError(f"expected something smaller, got {value!r}")
    return number


NUMBER_OR_TEXT = WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})
ExpiryMs = Annotated[int, BeforeValidator(expiry_ms_of), NUMBER_OR_TEXT]
Size = Annotated[int, BeforeValidator(size_of), NUMBER_OR_TEXT]


# Settings of EMQX's retainer that have no counterpart here; scripts may send back all that they were given.
WITHOUT_EFFECT = frozenset(
    {"msg_clear_interval", "stop_publish_clear_msg", "allow_never_expire", "delivery_rate", "flow_control"}
)


class Retainer(BaseModel):
    """Durations as `30s`, `5m`, sizes as `1MB`, or plain numbers."""

    model_config = ConfigDict(extra="ignore")

    enable: bool | None = None
    msg_expiry_interval: ExpiryMs | None = None
    max_payload_size: Size | None = None
    backend: Backend | None = None

    @model_validator(mode="before")
    @classmethod
    def check_names(cls, given: object) -> object:
        unknown = sorted(set(given) - set(cls.model_fields) - WITHOUT_EFFECT) if isinstance(given, dict) else []
        if unknown:
            raise ValueError(f"expected settings of EMQX's retainer, got {unknown[0]!r}")
        return given


@router.put("/mqtt/retainer", summary="Change settings of the retainer, until the next start")
async def put_retainer(services: ServicesDep, caller: CallerDep, asked: Retainer) -> dict[str, Any]:
    """In a cluster they change on all nodes, and stay until a node is told others."""
    caller.need_admin()
    services.status.need_cluster()
    services.handle.set_retainer(
        enable=asked.enable,
        expiry_ms=asked.msg_expiry_interval,
        max_payload=asked.max_payload_size,
        max_messages=None if asked.backend is None else asked.backend.max_retained_messages,
    )
    if services.status.cluster is not None:
        await services.handle.durable()  # then this node has them too
    return await get_retainer(services)


@router.get("/mqtt/retainer/messages", summary="List retained messages", response_model=EmqxMessages)
async def list_messages(
    services: ServicesDep, caller: CallerDep, topic: Filter = None, page: Page = 1, limit: Limit = 100
) -> Response:
    """For many pages `/api/v1/retained` is quicker: this one looks for its place from the beginning each time."""
    topic_filter = topic if topic is not None else "#"
    start, count = (page - 1) * limit, 0
    data: list[dict[str, object]] = []
    async for portion in services.retained.find(conditions_from({"filter": topic_filter}), caller):
        shown = portion[max(0, start - count) : max(0, start + limit - count)]
        data += [shape(message, caller) for message in shown]
        count += len(portion)
    return JSONResponse({"data": data, "meta": page_of(count, page, limit)})


@router.delete("/mqtt/retainer/messages", summary="Delete retained messages", status_code=204, response_class=Response)
async def delete_messages(services: ServicesDep, caller: CallerDep, topic: Filter = None) -> Response:
    """All of them, or those that match `topic`. It can be undone by its name, in the header `Holdfast-Operation`."""
    if topic is None:
        caller.need_admin()
    found = await services.retained.find_writable(
        conditions_from({"filter": topic if topic is not None else "#"}), caller
    )
    done = await services.retained.remove(found, caller)
    return Response(status_code=204, headers={"Holdfast-Operation": done.operation})


@router.get("/mqtt/retainer/message/{topic:path}", summary="One retained message", response_model=EmqxWhole)
async def get_message(services: ServicesDep, caller: CallerDep, topic: TopicPath) -> Response:
    message = services.retained.get(topic, caller)
    return JSONResponse({**shape(message, caller), "payload": base64.b64encode(message.payload).decode()})


@router.delete(
    "/mqtt/retainer/message/{topic:path}", summary="Delete one message", status_code=204, response_class=Response
)
async def delete_message(services: ServicesDep, caller: CallerDep, topic: TopicPath) -> Response:
    done = await services.retained.remove_topic(topic, caller)
    return Response(status_code=204, headers={"Holdfast-Operation": done.operation})


class PublishProperties(BaseModel):
    model_config = ConfigDict(extra="ignore")

    payload_format_indicator: int | None = Field(None, ge=0, le=1)
    message_expiry_interval: int | None = Field(None, ge=0, le=2**32 - 1)
    response_topic: str | None = Field(None, min_length=1, max_length=65535)
    correlation_data: str | None = Field(None, max_length=60000)
    content_type: str | None = Field(None, max_length=65535)
    user_properties: dict[str, str] = {}


class EmqxPublish(BaseModel):
    model_config = ConfigDict(extra="ignore")

    topic: str = Field(min_length=1, max_length=65535)
    payload: str = ""
    payload_encoding: str = Field("plain", pattern="^(plain|base64)$")
    qos: int = Field(0, ge=0, le=2)
    retain: bool = False
    clientid: str = Field("", max_length=65535, description="Who the message is said to be from.")
    properties: PublishProperties = Field(default_factory=lambda: PublishProperties.model_validate({}))


@router.post(
    "/publish",
    summary="Publish a message",
    response_model=EmqxPublished,
    responses={202: {"model": EmqxPublished, "description": "accepted; nobody is subscribed"}},
)
async def publish(services: ServicesDep, caller: CallerDep, asked: EmqxPublish) -> Response:
    one = publication_of(asked)
    services.admit(caller, [one])
    [accepted] = (await services.retained.publish([one], caller, asked.clientid if caller.admin else "")).accepted
    if accepted.reason not in (0, NO_MATCHING_SUBSCRIBERS):
        name = reason_name(accepted.reason)
        raise Problem(403, f"the message was refused: {name}", reason_code=accepted.reason)
    return JSONResponse(published_shape(accepted), 202 if accepted.reason else 200)


@router.post(
    "/publish/bulk",
    summary="Publish several messages",
    response_model=list[EmqxPublished],
    responses={
        202: {"model": list[EmqxPublished], "description": "accepted; nobody is subscribed to at least one of them"}
    },
)
async def publish_bulk(
    services: ServicesDep,
    caller: CallerDep,
    asked: Annotated[list[EmqxPublish], Body(min_length=1, max_length=BULK_MOST)],
) -> Response:
    """Each has its own answer, in the same order; one that is refused has a `reason_code` of 128 and more. One that
    cannot be a message at all refuses all of them.
    """
    messages = [publication_of(one) for one in asked]
    services.admit(caller, messages)
    for message in messages:
        check(message, caller, services)
    answers: list[Accepted] = []
    for sender, group in groupby(zip(asked, messages, strict=True), key=lambda pair: pair[0].clientid):
        batch = [message for _, message in group]
        answers += (await services.retained.publish(batch, caller, sender if caller.admin else "")).accepted
    return JSONResponse([published_shape(one) for one in answers], 202 if any(one.reason for one in answers) else 200)


def publication_of(asked: EmqxPublish) -> Publication:
    """Raises Problem or UsageError for what cannot be published."""
    encode_text(asked.clientid)
    if "\0" in asked.clientid:
        raise Problem(400, "clientid has a NUL, expected text without")
    given = asked.properties
    data = given.correlation_data
    return Publication(
        topic=asked.topic,
        payload=asked.payload,
        encoding="base64" if asked.payload_encoding == "base64" else "text",
        qos=asked.qos,
        retain=asked.retain,
        expiry_s=given.message_expiry_interval,
        expires_at_ms=None,
        content_type=given.content_type,
        response_topic=given.response_topic,
        payload_format=given.payload_format_indicator,
        correlation_data=None if data is None else base64.b64encode(encode_text(data)).decode(),
        user_properties=list(islice(given.user_properties.items(), 100)),
    )


def check(message: Publication, caller: Caller, services: Services) -> None:
    """Raises for what cannot be published, or not by this caller, before anything is."""
    topic = topic_bytes(message.topic)
    check_topic(topic, services.handle.broker.settings.max_topic_levels)
    caller.need_write(topic, message.retain, message.qos)
    most, size = services.retained.max_payload, len(message.payload_bytes())
    if 0 < most < size:
        raise TooLarge(f"payload has {size} bytes, expected no more than limits.max_packet_size")
    message.properties_bytes()


def published_shape(accepted: Accepted) -> dict[str, object]:
    shown: dict[str, object] = {"id": f"{accepted.offset:032X}"}
    if accepted.reason:
        name = reason_name(accepted.reason).replace(" ", "_")
        shown |= {"message": name, "reason_code": accepted.reason}
    return shown


def node_of(session: Session, own: str) -> str:
    """The node that a client is connected to, or was last."""
    return session.spread.node or own if session.spread is not None else own


def client_shape(session: Session, own: str) -> dict[str, object]:
    """`own` is the name of this node. Of a client of another node it is not known here from where and since when."""
    connection = session.connection
    address, _, port = str(getattr(connection.peer, "address", "") if connection is not None else "").rpartition(":")
    version = {"5.0": 5, "3.1.1": 4, "3.1": 3}.get(session.protocol, 0)
    return {
        "clientid": session.client_id,
        "username": session.owner or None,
        "ip_address": address.strip("[]"),
        "port": int(port) if port.isdigit() else 0,
        "connected": session.attached,
        "connected_at": None if connection is None else iso(connection.connected_at_ms),
        "created_at": iso(session.created_at_ms),
        "proto_name": "MQTT-SN" if session.protocol.startswith("SN") else "MQTT",
        "proto_ver": version,
        # What is kept is one and a half times what the client announced.
        "keepalive": 0 if connection is None else connection.agreed.keep_alive_ms * 2 // 3000,
        "clean_start": session.expiry_s == 0,
        "expiry_interval": session.expiry_s,
        "subscriptions_cnt": len(session.subscriptions),
        "inflight_cnt": len(session.inflight),
        "inflight_max": session.window,
        "mqueue_len": len(session.queue),
        "awaiting_rel_cnt": len(session.unreleased),
        "node": node_of(session, own),
    }


@router.get("/clients", summary="List clients", response_model=EmqxClients)
async def list_clients(
    services: ServicesDep,
    caller: CallerDep,
    page: Page = 1,
    limit: Limit = 100,
    clientid: Annotated[str | None, Query(max_length=65535)] = None,
    username: Annotated[str | None, Query(max_length=65535)] = None,
    like_clientid: Annotated[str | None, Query(max_length=65535)] = None,
    like_username: Annotated[str | None, Query(max_length=65535)] = None,
    conn_state: Annotated[str | None, Query(pattern="^(connected|disconnected|idle)$")] = None,
) -> Response:
    caller.need_admin()
    found: list[Session] = []
    for number, session in enumerate(list(services.handle.broker.sessions.values())):
        if number % 5000 == 4999:
            await asyncio.sleep(0)
        if (
            (clientid is None or session.client_id == clientid)
            and (username is None or session.owner == username)
            and (like_clientid is None or like_clientid in session.client_id)
            and (like_username is None or like_username in session.owner)
            and (conn_state is None or (conn_state == "connected") == session.attached)
        ):
            found.append(session)
    start = (page - 1) * limit
    data = [client_shape(session, services.status.node or NODE) for session in found[start : start + limit]]
    return JSONResponse({"data": data, "meta": page_of(len(found), page, limit)})


@router.get(
    "/clients/{clientid:path}/subscriptions",
    summary="The subscriptions of a client",
    response_model=list[EmqxSubscription],
)
async def client_subscriptions(
    services: ServicesDep, caller: CallerDep, clientid: Annotated[str, Path(min_length=1)]
) -> Response:
    caller.need_admin()
    session = services.handle.broker.sessions.get(clientid)
    if session is None:
        raise NotFound(f"there is no client {clientid!r}")
    own = services.status.node or NODE
    return JSONResponse([subscription_shape(session, one, own) for one in list(session.subscriptions.values())])


@router.get("/clients/{clientid:path}", summary="One client", response_model=EmqxClient)
async def get_client(
    services: ServicesDep, caller: CallerDep, clientid: Annotated[str, Path(min_length=1)]
) -> Response:
    caller.need_admin()
    session = services.handle.broker.sessions.get(clientid)
    if session is None:
        raise NotFound(f"there is no client {clientid!r}")
    return JSONResponse(client_shape(session, services.status.node or NODE))


@router.delete("/clients/{clientid:path}", summary="Disconnect a client", status_code=204, response_class=Response)
async def delete_client(
    services: ServicesDep, caller: CallerDep, clientid: Annotated[str, Path(min_length=1)]
) -> Response:
    """An absent client loses its session. In a cluster this reaches clients of other nodes too."""
    caller.need_admin()
    session = services.handle.broker.sessions.get(clientid)
    by_log = services.status.cluster is not None and session is not None and session.connection is None
    if by_log:
        services.status.need_cluster()
    kicked = services.handle.kick(clientid, ADMINISTRATIVE_ACTION, "disconnected by the operator")
    if not kicked and not services.handle.end_session(clientid):
        raise NotFound(f"there is no client {clientid!r}")
    if by_log:
        await services.handle.durable()  # then it has been done on this node, and is in the log for the others
    return Response(status_code=204)


def subscription_shape(session: Session, subscription: Subscription, own: str) -> dict[str, object]:
    return {
        "clientid": session.client_id,
        "topic": subscription.topic_filter.decode(),
        "qos": subscription.qos,
        "nl": int(subscription.no_local),
        "rap": int(subscription.retain_as_published),
        "rh": 0,
        "node": node_of(session, own),
    }


@router.get("/subscriptions", summary="List subscriptions", response_model=EmqxSubscriptions)
async def list_subscriptions(
    services: ServicesDep,
    caller: CallerDep,
    page: Page = 1,
    limit: Limit = 100,
    clientid: Annotated[str | None, Query(max_length=65535)] = None,
    qos: Annotated[int | None, Query(ge=0, le=2)] = None,
    share_group: Annotated[str | None, Query(max_length=65535)] = None,
    match_topic: Annotated[str | None, Query(min_length=1, max_length=65535, description="A topic filter.")] = None,
) -> Response:
    caller.need_admin()
    levels: list[bytes] | None = None
    if match_topic is not None:
        check_filter(match_topic)
        levels = match_topic.encode().split(b"/")
    group = None if share_group is None else encode_text(share_group)
    sessions = services.handle.broker.sessions
    of_one = [sessions[clientid]] if clientid in sessions else []
    found: list[tuple[Session, Subscription]] = []
    for number, session in enumerate(list(sessions.values()) if clientid is None else of_one):
        if number % 2000 == 1999:
            await asyncio.sleep(0)
        for subscription in list(session.subscriptions.values()):
            if (
                (qos is None or subscription.qos == qos)
                and (group is None or subscription.share_name == group)
                and (levels is None or matches(levels, subscription.levels))
            ):
                found.append((session, subscription))
    start = (page - 1) * limit
    data = [subscription_shape(*one, services.status.node or NODE) for one in found[start : start + limit]]
    return JSONResponse({"data": data, "meta": page_of(len(found), page, limit)})


@router.post("/login", summary="A bearer token for a user", response_model=Token)
async def login(request: Request, services: ServicesDep, given: Annotated[Credentials, Body()]) -> Response:
    if services.authenticator.is_open:
        raise Problem(400, "nobody needs to log in here: neither keys nor users are configured")
    caller = await services.authenticator.check(given.username, encode_text(given.password), address_of(request))
    if caller is None:
        raise Problem(401, "user name or password is wrong")
    return JSONResponse({"token": services.authenticator.log_in(caller), "version": services.status.version})


@router.post("/logout", summary="End the login of a bearer token", status_code=204, response_class=Response)
async def logout(request: Request, services: ServicesDep) -> Response:
    """EMQX's body, which names the user, is not needed: the token that is sent is the one that ends."""
    services.authenticator.log_out(token_of(request))
    return Response(status_code=204)


router.include_router(node_router)
