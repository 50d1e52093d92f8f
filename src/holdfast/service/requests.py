"""What is asked for: conditions on retained messages, and messages to publish. The shapes are those of the API's JSON,
and the command line is held to the same ones.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.broker.topics import is_valid_filter
from holdfast.broker.views import Query, Search
from holdfast.errors import UsageError
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.wire import decode_text
from holdfast.rules.restore import NEVER, seconds_left
from holdfast.service.messages import encode_forwarded

TOPIC_MAX = 65535
MAX_MS = 253_402_300_799_000  # the end of the year 9999
EXPIRY_MAX_S = 2**32 - 1


class Conditions(BaseModel):
    """Which retained messages: all given conditions must hold."""

    model_config = ConfigDict(extra="forbid")

    filter: str = Field("#", min_length=1, max_length=TOPIC_MAX, description="A topic filter.")
    contains: str = Field("", max_length=TOPIC_MAX, description="Part of the topic.")
    search: str = Field(
        "",
        max_length=1000,
        description="Part of the topic or the payload, for administrators also of the publisher's client id or user "
        "name. Case is ignored.",
    )
    client_id: str = Field("", max_length=TOPIC_MAX, description="Client id of the publisher.")
    username: str = Field("", max_length=TOPIC_MAX, description="User name of the publisher.")
    min_size: int = Field(-1, ge=-1, description="Minimum payload size in bytes; -1 means any.")
    max_size: int = Field(-1, ge=-1, description="Maximum payload size in bytes; -1 means any.")
    older_than: float = Field(-1, ge=-1, le=1e10, description="Set at least this many seconds ago; -1 means any.")
    newer_than: float = Field(-1, ge=-1, le=1e10, description="Set at most this many seconds ago; -1 means any.")
    hidden: bool = Field(
        False, description="With the filter `#`: also topics that begin with `$`, which wildcards leave out."
    )

    def query(self, now_ms: int, publishers: bool = False) -> Query:
        """The conditions as the retained index understands them; `publishers`: a search looks at these too. Raises
        UsageError when they make no sense.
        """
        check_filter(self.filter)
        if self.hidden and self.filter != "#":
            raise UsageError(f"hidden topics are possible with the filter '#' only, got {self.filter!r}")
        query = Query()
        query.contains = encode_text(self.contains)
        if self.search:
            encode_text(self.search)
            query.search = Search(self.search, publishers)
        query.client_id = self.client_id
        query.username = self.username
        query.min_size = self.min_size
        query.max_size = self.max_size
        if self.older_than >= 0:
            query.stored_before_ms = now_ms - int(self.older_than * 1000)
        if self.newer_than >= 0:
            query.stored_after_ms = now_ms - int(self.newer_than * 1000)
        query.hidden = self.hidden
        return query


class Publication(BaseModel):
    """A message to publish. `payload` is text, or base64 when `encoding` says so."""

    model_config = ConfigDict(extra="forbid")

    topic: str = Field(min_length=1, max_length=TOPIC_MAX)
    payload: str = ""
    encoding: Literal["text", "base64"] = "text"
    qos: int = Field(0, ge=0, le=2)
    retain: bool = False
    expiry_s: int | None = Field(None, ge=0, le=EXPIRY_MAX_S)
    expires_at_ms: int | None = Field(None, ge=1, le=MAX_MS, description="The moment itself, instead of `expiry_s`.")
    content_type: str | None = Field(None, max_length=65535)
    response_topic: str | None = Field(None, min_length=1, max_length=65535)
    correlation_data: str | None = Field(None, description="base64", max_length=80000)
    payload_format: int | None = Field(None, ge=0, le=1)
    user_properties: list[tuple[str, str]] = Field([], max_length=100)

    def seconds_to_live(self, now_ms: int) -> int:
        """From now on, -1 without an end. Raises UsageError for a moment that has passed, and for two ends."""
        if self.expires_at_ms is None:
            return NEVER if self.expiry_s is None else self.expiry_s
        if self.expiry_s is not None:
            raise UsageError("expected one of expiry_s and expires_at_ms, got both")
        if self.expires_at_ms <= now_ms:
            raise UsageError(f"expires_at_ms {self.expires_at_ms} has passed, expected a moment after {now_ms}")
        return min(seconds_left(self.expires_at_ms, now_ms), EXPIRY_MAX_S)

    def payload_bytes(self) -> bytes:
        return decode_base64(self.payload) if self.encoding == "base64" else encode_text(self.payload)

    def properties_bytes(self) -> bytes:
        """The properties as a message carries them. Raises UsageError for what no packet can hold."""
        properties = Properties()
        properties.payload_format = self.payload_format
        properties.content_type = None if self.content_type is None else checked(self.content_type)
        properties.response_topic = None if self.response_topic is None else checked(self.response_topic).encode()
        if self.correlation_data is not None:
            properties.correlation_data = decode_base64(self.correlation_data)
        if self.user_properties:
            properties.user_properties = [(checked(key), checked(value)) for key, value in self.user_properties]
        return encode_forwarded(properties)


class RestoreRequest(BaseModel):
    """Which part of the past to bring back: what matched `filter` at `at_ms`, or just after the publish `offset`."""

    model_config = ConfigDict(extra="forbid")

    filter: str = Field(min_length=1, max_length=TOPIC_MAX)
    at_ms: int = Field(0, ge=0, le=MAX_MS)
    offset: int = Field(0, ge=0, le=2**62)
    replace: bool = Field(False, description="Also where something else is retained now.")
    remove: bool = Field(False, description="Also delete what matches now and was not retained then.")
    dry_run: bool = Field(True, description="Only say what would be done.")

    def check(self) -> None:
        check_filter(self.filter)
        check_moment(self.at_ms, self.offset)


def check_moment(at_ms: int, offset: int) -> None:
    if (at_ms == 0) == (offset == 0):
        raise UsageError("expected one of at_ms and offset")


def conditions_from(given: Mapping[str, Any]) -> Conditions:
    """Conditions from plain values. Raises UsageError with every problem in one line."""
    try:
        return Conditions(**given)
    except ValidationError as error:
        raise UsageError("; ".join(problems_of(error))) from None


def publications_from(given: list[dict[str, Any]]) -> list[Publication]:
    """Messages to publish from plain values. Raises UsageError with the problems of the first that is not valid."""
    try:
        return [Publication.model_validate(one) for one in given]
    except ValidationError as error:
        raise UsageError("; ".join(problems_of(error))) from None


def problems_of(error: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()]


def check_filter(topic_filter: str) -> None:
    try:
        good = is_valid_filter(topic_filter.encode(), TOPIC_MAX) and "\0" not in topic_filter
    except UnicodeEncodeError:
        good = False
    if not good:
        raise UsageError(
            f"filter {topic_filter!r} is not a topic filter, expected `#` last and alone, `+` alone in its level"
        )


def topic_bytes(topic: str) -> bytes:
    """A topic as packets carry it. The broker does not look again at a topic that it knows already, so this does."""
    name = encode_text(topic)
    if not 0 < len(name) <= TOPIC_MAX:
        raise UsageError(f"topic has {len(name)} bytes, expected 1 to {TOPIC_MAX}")
    decode_text(name)
    return name


def encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError("text has a lone surrogate, expected characters that UTF-8 can hold") from None


def checked(text: str) -> str:
    """Text as a property can carry it."""
    if "\0" in text or len(encode_text(text)) > 65535:
        raise UsageError("a property has a NUL or is too long, expected text of up to 65535 bytes")
    return text


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("payload is not base64, expected it because of its encoding") from None
