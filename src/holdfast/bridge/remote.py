"""The bridge as a client of the other broker: one connection after another, to one address after another.

What is unacknowledged when a connection is lost is sent again on the next one under the same identifier, so that QoS 2
stays exactly once. Passwords, tokens and certificates are read for each connection.

A broker of MQTT 3.1.1 has no other way to refuse a message than to hang up, as on one that is too large for it. When it
has done so a few times with the same message in front, that one is sent alone, on a connection that has just been seen
to work. If it hangs up again each time, the message is left out: nothing behind it would ever cross.
"""

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.bridge.options import BridgeOptions
from holdfast.bridge.plan import digest
from holdfast.broker.session import MARK, SNAPSHOT_PROPERTY
from holdfast.client import Client, Options
from holdfast.client.client import Answer
from holdfast.client.connection import BrokerConnection, open_connection
from holdfast.errors import ConnectionFailed, UsageError
from holdfast.protocol.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    PUBACK,
    V5,
    Ack,
    ConnAck,
    Disconnect,
    Packet,
    Ping,
    Publish,
    SubscriptionRequest,
    Will,
)
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import (
    BAD_USERNAME_OR_PASSWORD,
    MALFORMED_PACKET,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    RECEIVE_MAXIMUM_EXCEEDED,
    UNACCEPTABLE_PROTOCOL_311,
    UNSPECIFIED_ERROR,
    return_code_311,
)

log = logging.getLogger("holdfast.bridge")

CONNECT_TIMEOUT_S: Final = 10.0
GOODBYE_S: Final = 5.0
# A will below $SYS is more than some brokers allow, and they say no more than this.
MAY_BE_THE_WILL: Final = (NOT_AUTHORIZED, return_code_311(NOT_AUTHORIZED), BAD_USERNAME_OR_PASSWORD)


SUSPECTED_AFTER: Final = 3  # connections in a row that ended with the same message in front
LEFT_OUT_AFTER: Final = 3  # trials
LEFT_OUT_MOST: Final = 1000  # of those that are remembered

# How far the trial of a message is: none, the link is asked for a sign of life, the message was sent.
NO_TRIAL: Final = 0
ASKED: Final = 1
ON_TRIAL: Final = 2

REPEAT_REFUSED: Final = (MALFORMED_PACKET, PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED)


class RemoteClient(Client):
    """`trouble` says why there is no connection, empty while there is one."""

    def __init__(self, options: BridgeOptions) -> None:
        self.bridge = options
        self.address = 0
        self.trouble = ""
        self.connects = 0
        self.is_private = options.private and options.version != V5
        self.has_will = options.notifications and not options.notifications_local_only
        self.on_connected: Callable[[ConnAck], None] = lambda connack: None
        self.on_lost: Callable[[str], None] = lambda why: None
        self.on_answer: Callable[[], None] = lambda: None
        self._resting = True
        self._suspect = 0  # the identifier of the message in front when connections ended, and
        self._ends = 0  # how many did in a row
        self._failed_trials = 0
        self._trial = NO_TRIAL
        self._held: list[Packet] = []  # what came during a trial
        self._left_out: OrderedDict[bytes, bytes] = OrderedDict()  # topics, and what was not taken there
        self._repeated: list[int] = []  # QoS 2 messages sent again on this connection and not answered, in order
        self._handling: dict[int, Publish] = {}  # QoS 2 messages that were taken and not acknowledged, by identifier
        super().__init__(options.endpoint(0), self.make_options(with_password=False))

    def make_options(self, with_password: bool = True) -> Options:
        """What this connection says of itself. Raises UsageError when a file cannot be read."""
        bridge = self.bridge
        properties: Properties | None = None
        if bridge.version == V5:
            properties = Properties()
            properties.receive_maximum = bridge.max_inflight
            properties.session_expiry = 0 if bridge.clean_session else bridge.session_expiry_s
            properties.user_properties = [(SNAPSHOT_PROPERTY, MARK), ("holdfast-retained-meta", "on")]
        will = Will(bridge.state_topic.encode(), b"0", 1, True, None) if self.has_will else None
        return Options(
            client_id=bridge.client_id,
            version=bridge.version,
            clean_start=bridge.clean_session,
            keep_alive=bridge.keep_alive_s,
            username=bridge.username or None,
            password=bridge.password() if with_password else None,
            will=will,
            properties=properties,
            max_inflight=bridge.max_inflight,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            reconnect=True,
            is_bridge=self.is_private,
        )

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def connection_number(self) -> int:
        """Of the connection that was made last, as `take` tells it."""
        return self._connections_opened

    @property
    def is_started(self) -> bool:
        return self._reader is not None

    @property
    def shown_address(self) -> str:
        return self.bridge.addresses[self.address % len(self.bridge.addresses)]

    def start(self) -> None:
        if self._reader is None:
            self._resting = False
            self._reader = asyncio.create_task(self._begin(), name=f"bridge-{self.bridge.name}-remote")

    async def _begin(self) -> None:
        connection = await self._reconnect(at_once=True)
        self._resume(connection)
        await self._run(connection)

    async def until_ready(self) -> None:
        """Wait until a message can leave at once."""
        await self._until(lambda: self._connection is not None and self._qos.has_room)

    def ask_for_answer(self) -> bool:
        """Send PINGREQ: the answer says that all that was sent before has arrived. Whether it was sent."""
        if self._connection is not None:
            self._connection.send(Ping(PINGREQ))
        return self._connection is not None

    async def send(self, publish: Publish) -> asyncio.Future[Answer] | None:
        if self._left_out and self._left_out.get(publish.topic) == content_of(publish):
            raise UsageError("the other broker ended the connection each time that it came")
        return await super().send(publish)

    def _on_packet(self, connection: BrokerConnection, packet: Packet) -> None:
        if self._trial != NO_TRIAL:
            self._on_packet_of_trial(connection, packet)
            return
        if packet.kind == PINGRESP:
            self.on_answer()
        elif isinstance(packet, Ack) and packet.packet_id in self._repeated:
            self._repeated.remove(packet.packet_id)
        super()._on_packet(connection, packet)

    def _on_packet_of_trial(self, connection: BrokerConnection, packet: Packet) -> None:
        publish = self._qos.first_waiting()
        assert publish is not None
        if packet.kind == PINGRESP and self._trial == ASKED:
            self._trial = ON_TRIAL
            publish.dup = connection.connack.session_present
            connection.send(publish)
        elif isinstance(packet, Ack) and packet.packet_id == publish.packet_id:
            self._end_trials()
            super()._on_packet(connection, packet)
            self._go_on(connection)
        elif packet.kind != PINGRESP:
            self._held.append(packet)

    def _end_trials(self) -> None:
        self._trial = NO_TRIAL
        self._suspect = self._ends = self._failed_trials = 0

    async def _read_until_lost(self, connection: BrokerConnection) -> ConnectionFailed:
        try:
            failure = await super()._read_until_lost(connection)
        except asyncio.CancelledError:
            if self._trial != NO_TRIAL:  # nobody else knows of it yet
                await connection.close(None)
            raise
        if not connection.is_aborted:
            self._note_end()
        return failure

    def _note_end(self) -> None:
        """The other side has ended the connection: maybe for what was sent."""
        publish = self._qos.first_waiting()
        if publish is None or publish.packet_id != self._suspect:
            self._suspect = publish.packet_id if publish is not None else 0
            self._ends = self._failed_trials = 0
        self._ends += 1
        if publish is None or self._trial != ON_TRIAL:
            return
        self._failed_trials += 1
        if self._failed_trials >= LEFT_OUT_AFTER:
            self._leave_out(publish)

    def _leave_out(self, publish: Publish) -> None:
        log.warning(
            "a message is left out: the other broker ends the connection each time that it comes",
            extra={
                "bridge": self.bridge.name,
                "topic": publish.topic.decode(errors="replace"),
                "bytes": len(publish.payload),
            },
        )
        self._left_out[publish.topic] = content_of(publish)
        while len(self._left_out) > LEFT_OUT_MOST:
            self._left_out.popitem(last=False)
        self._end_trials()
        self._qos.withdraw(publish.packet_id)
        self._resolve(publish.packet_id, Ack(PUBACK, publish.packet_id, UNSPECIFIED_ERROR))

    async def rest(self, reason: int = 0) -> None:
        """Disconnect until `start` is called again. What is unacknowledged stays so."""
        self._resting = True
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            if self.has_will:
                with contextlib.suppress(ConnectionFailed, UsageError):
                    connection.send(Publish(self.bridge.state_topic.encode(), b"0", 0, True))
            await connection.close(Disconnect(reason))

    async def disconnect(self, reason: int = 0, properties: Properties | None = None) -> None:
        await self.rest(reason)
        self._resting = False
        self._end(ConnectionFailed("the bridge has ended"))

    def _end(self, failure: ConnectionFailed) -> None:
        if not self._resting:  # else there is more to come, later
            super()._end(failure)

    async def say_goodbye(self) -> None:
        """Leave nothing behind on the other broker, if it can be reached: no session, and no word of the bridge."""
        if not self.connects:
            return
        properties = None if self.bridge.version != V5 else Properties()
        try:
            options = replace(self.make_options(), clean_start=True, will=None, reconnect=False, properties=properties)
            async with asyncio.timeout(GOODBYE_S), Client(self.endpoint, options) as client:
                if self.has_will:
                    await client.publish(self.bridge.state_topic, b"", 1, True)
        except (ConnectionFailed, UsageError, TimeoutError) as error:
            log.info("the other broker keeps the session", extra={"bridge": self.bridge.name, "error": str(error)})

    def drop(self) -> None:
        """Lose the connection, to make another one."""
        if self._connection is not None:
            asyncio.create_task(self._connection.abort("another address is preferred"))  # noqa: RUF006

    async def acknowledge_taken(self, connection_number: int, publish: Publish) -> None:
        """Acknowledge what was taken: a QoS 2 message also on a later connection, where its repeat was passed over.
        What came on no connection of this client, number 0, was acknowledged there.
        """
        if connection_number == 0:
            return
        if publish.qos < 2:
            self.acknowledge(connection_number, publish)
            return
        self._handling.pop(publish.packet_id, None)
        self.acknowledge(self._connections_opened, publish)
        if self._connection is None:
            self._qos.accept(publish)

    async def take(self) -> tuple[int, Publish]:
        while True:
            number, publish = await super().take()
            if publish.qos < 2:
                return number, publish
            wanted, answer = self._qos.on_publish(publish)
            if not wanted and answer is not None and self._connection is not None:
                self._connection.send(answer)
            elif publish.packet_id not in self._handling:
                self._handling[publish.packet_id] = publish
                return number, publish

    def _tries_again(self, failure: ConnectionFailed) -> bool:
        return True

    def _fail_requests(self, failure: ConnectionFailed) -> None:
        super()._fail_requests(failure)
        if failure.reason in REPEAT_REFUSED and self._repeated:
            # mosquitto 2.0 ends a connection of MQTT 5 for the repeat of a QoS 2 message that it has.
            self._qos.release(self._repeated[0])
        self._repeated = []
        self.trouble = str(failure)
        self.on_lost(self.trouble)

    async def _reconnect(self, at_once: bool = False) -> BrokerConnection:
        """Try one address after another until one takes us."""
        delay_s = self.bridge.retry_s
        if not self.bridge.round_robin:
            self.address = 0
        while True:
            if not at_once:
                # Bridges that lost the same broker should not all come back in the same instant.
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(delay_s * 2, self.bridge.retry_max_s)
            at_once = False
            for _ in self.bridge.addresses:
                try:
                    return await self.open()
                except (ConnectionFailed, UsageError) as error:
                    if str(error) != self.trouble:
                        self.trouble = str(error)
                        log.warning("bridge not connected", extra={"bridge": self.bridge.name, "error": self.trouble})
                    self.address += 1

    async def open(self) -> BrokerConnection:
        """A connection to the present address, with as much of what we would like to say as the broker bears."""
        endpoint = self.bridge.endpoint(self.address)
        self.endpoint = endpoint
        self.options = self.make_options()
        try:
            return await open_connection(endpoint, self.options)
        except ConnectionFailed as error:
            unknown = error.reason == UNACCEPTABLE_PROTOCOL_311 or (not error.reason and not self.connects)
            if self.is_private and unknown:
                self.is_private = False
            elif self.has_will and error.reason in MAY_BE_THE_WILL and self.bridge.state_topic.startswith("$"):
                self.has_will = False
            else:
                raise
            self.options = self.make_options()
        try:
            return await open_connection(endpoint, self.options)
        except ConnectionFailed:
            self.is_private = self.bridge.private and self.bridge.version != V5
            self.has_will = self.bridge.notifications and not self.bridge.notifications_local_only
            raise

    async def first_answers(self) -> bool:
        """Whether the first address takes clients again."""
        try:
            options = replace(
                self.make_options(),
                client_id=f"{self.bridge.client_id}-look",
                clean_start=True,
                will=None,
                properties=None,
            )
            async with Client(self.bridge.endpoint(0), replace(options, reconnect=False)):
                return True
        except (ConnectionFailed, UsageError):
            return False

    def _resume(self, connection: BrokerConnection) -> None:
        self._trial = NO_TRIAL
        self._held = []
        if self._ends >= SUSPECTED_AFTER and self._qos.first_waiting() is not None:
            self._trial = ASKED
            connection.send(Ping(PINGREQ))
        else:
            self._go_on(connection)

    def _go_on(self, connection: BrokerConnection) -> None:
        self._subscriptions.clear()  # the link subscribes anew, to what has changed
        if not connection.connack.session_present:
            self._handling.clear()
        self.trouble = ""
        self.connects += 1
        super()._resume(connection)
        self._repeated = self._qos.unanswered() if connection.connack.session_present else []
        if self.has_will:
            connection.send(Publish(self.bridge.state_topic.encode(), b"1", 0, True))
        self.on_connected(connection.connack)
        held, self._held = self._held, []
        for packet in held:
            self._on_packet(connection, packet)


def content_of(publish: Publish) -> bytes:
    return digest(publish.payload, b"", V5)


async def try_out(options: BridgeOptions) -> list[dict[str, object]]:
    """Connect to each address once, as another client, and see whether it takes us and our subscriptions."""
    found: list[dict[str, object]] = []
    for number, address in enumerate(options.addresses):
        one = replace(
            options, client_id=f"{options.client_id}-test", clean_session=True, notifications=False, private=False
        )
        told: dict[str, object] = {"address": address, "connected": False, "error": "", "refused": []}
        found.append(told)
        try:
            remote = RemoteClient(one)
            client = Client(one.endpoint(number), replace(remote.make_options(), reconnect=False))
            await client.connect()
        except (ConnectionFailed, UsageError) as error:
            told["error"] = str(error)
            continue
        try:
            told["connected"] = True
            told["refused"] = await refused(client, one)
        except ConnectionFailed as error:
            told["error"] = str(error)
        finally:
            await client.disconnect()
    return found


async def refused(client: Client, options: BridgeOptions) -> list[str]:
    filters = [topic.remote_filter for topic in options.topics if topic.comes_in]
    if not filters:
        return []
    answer = await client.subscribe([SubscriptionRequest(one.encode(), 0) for one in filters])
    return [one for one, reason in zip(filters, answer.reasons, strict=False) if reason >= 0x80]


def is_refusal(answer: object) -> bool:
    return isinstance(answer, Ack) and answer.reason >= 0x80


def is_holdfast(connack: ConnAck) -> bool:
    """Whether the other broker is one: it has agreed to mark the end of each snapshot."""
    return connack.properties is not None and connack.properties.user_property(SNAPSHOT_PROPERTY) == MARK
