"""MQTT over WebSocket: frames by wsproto, everything else as on any byte stream."""

import logging
from ipaddress import ip_address
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError as FramingError

from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.peer import StreamPeer

log = logging.getLogger("holdfast.net")

# `mqttv3.1` is what clients of that age ask for.
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
PORTS = {"http": 80, "https": 443}


class Origins:
    """The web pages that may connect. Browsers say where a page comes from; other programs need not.

    `named` as in `https://ops.example`, or `*`. Another port of the same host is another site. A loopback listener
    takes pages from loopback names only: a host name of somebody else's may point there too.
    """

    def __init__(self, named: list[str], is_loopback: bool) -> None:
        self.named = frozenset(named)
        self.is_loopback = is_loopback

    def allow(self, origin: bytes | None, host: str) -> bool:
        if origin is None or "*" in self.named:
            return True
        text = origin.decode("ascii", errors="replace").lower()
        if text in self.named:
            return True
        scheme = text.partition(":")[0]
        page = place_of(text, scheme)
        return page is not None and page == place_of(f"//{host.lower()}", scheme) and self.is_ours(page[0])

    def is_ours(self, host: str) -> bool:
        return not self.is_loopback or is_local(host)


def place_of(url: str, scheme: str) -> tuple[str, int] | None:
    """Returns host and port, which is the scheme's own where none is named; None for what names no host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or scheme not in PORTS:
        return None
    return parts.hostname, PORTS[scheme] if port is None else port


def is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class WebSocketPeer(StreamPeer):
    """A packet may span frames and a frame may hold many packets [MQTT-6.0.0-2]."""

    def __init__(self, driver: Driver, policy: ListenerPolicy, path: str, origins: Origins) -> None:
        super().__init__(driver, policy)
        self.path = path
        self.origins = origins
        self.framing = WSConnection(ConnectionType.SERVER)
        self.accepted = False
        self.last_ping: Ping | None = None

    def data_received(self, data: bytes) -> None:
        try:
            self.framing.receive_data(data)
            for event in self.framing.events():
                self.on_event(event)
            self.answer_ping()
        except FramingError as error:
            log.warning("websocket error", extra={"address": self.address, "error": str(error)})
            self.drop("websocket error")

    def eof_received(self) -> bool:
        return False

    def on_event(self, event: object) -> None:
        if isinstance(event, BytesMessage):
            super().data_received(bytes(event.data))
        elif isinstance(event, Request):
            self.on_request(event)
        elif isinstance(event, TextMessage):
            # Only binary frames carry MQTT [MQTT-6.0.0-1].
            self.raw(self.framing.send(CloseConnection(CloseReason.UNSUPPORTED_DATA, "binary frames only")))
            self.drop("text frame")
        elif isinstance(event, Ping):
            self.last_ping = event
        elif isinstance(event, CloseConnection):
            self.raw(self.framing.send(event.response()))
            self.drop("websocket closed")

    def answer_ping(self) -> None:
        """Answer the last of the PINGs that came [RFC 6455: 5.5.3], once the client reads what it was sent before."""
        ping = self.last_ping
        if ping is not None and not self.connection.outbox.blocked:
            self.last_ping = None
            self.raw(self.framing.send(ping.response()))

    def resume_writing(self) -> None:
        super().resume_writing()
        self.answer_ping()

    def on_request(self, request: Request) -> None:
        if request.target.split("?")[0] != self.path:
            self.refuse(404, f"MQTT is served at {self.path}")
            return
        origin = next((value for name, value in request.extra_headers if name.lower() == b"origin"), None)
        if not self.origins.allow(origin, request.host):
            # A page of any other site could else use the browser of its visitors to get in here.
            log.warning("websocket from another site refused", extra={"address": self.address, "origin": origin})
            self.refuse(403, "pages from this origin may not connect, see websocket.origins")
            return
        chosen = next((name for name in SUBPROTOCOLS if name in request.subprotocols), None)
        if chosen is None:
            self.refuse(400, "the subprotocol must be mqtt")  # [MQTT-6.0.0-4]
            return
        self.raw(self.framing.send(AcceptConnection(subprotocol=chosen)))
        self.accepted = True

    def refuse(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
        rejection = RejectConnection(status_code=status, headers=headers, has_body=True)
        self.raw(self.framing.send(rejection))
        self.raw(self.framing.send(RejectData(data=body, body_finished=True)))
        self.drop(text)

    def drop(self, reason: str) -> None:
        """The stream is over: the broker hears of it when the transport says so."""
        super().close(reason)

    def raw(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def write(self, data: bytes) -> None:
        if self.accepted and self.transport is not None:
            self.transport.write(self.framing.send(BytesMessage(data)))

    def close(self, reason: str) -> None:
        if self.accepted and not self.close_reason and self.transport is not None:
            self.accepted = False
            self.raw(self.framing.send(CloseConnection(CloseReason.NORMAL_CLOSURE, None)))
        super().close(reason)
