"""One bridge at work: messages go over it in both directions, and the retained sets agree.

A message is acknowledged on one side when the other has acknowledged it. Order is kept for each direction.

Retained messages cross live like all others. When the link was down, or a message could not be delivered, `Link` puts
them right: what the other broker has is compared with what both had last (`merge`), then what has changed or gone here
since is sent (`send_changes`). Nothing is sent that is there already. A retained message is looked up at the moment it
is sent, and never while messages of its topic are under way, so that no older value comes after a newer one.
"""

import asyncio
import contextlib
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.bridge.echoes import Echoes
from holdfast.bridge.local import LocalClient
from holdfast.bridge.memory import DOUBTED, Memory
from holdfast.bridge.merge import LOSES, SAME, STAYS, TAKEN, merge
from holdfast.bridge.options import LAZY, ONCE, REMOTE, BridgeOptions
from holdfast.bridge.plan import MOST_HOPS, Plan, carry, digest, passed
from holdfast.bridge.remote import RemoteClient, is_holdfast, is_refusal
from holdfast.broker.message import Message, Publisher
from holdfast.broker.publishing import check_user_properties
from holdfast.broker.snapshot import END_TOPIC
from holdfast.broker.system import SYSTEM
from holdfast.broker.topics import check_topic, matches
from holdfast.broker.views import Query, collect
from holdfast.client import Client
from holdfast.errors import ConnectionFailed, HoldfastError, ProtocolError, UsageError
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.protocol.mqtt.packets import V5, ConnAck, Publish, SubAck, SubscriptionRequest
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import reason_name
from holdfast.rules.bridge_topic import KEEP, SET, STRIP, BridgeTopic
from holdfast.rules.restore import seconds_left
from holdfast.service.messages import decode_forwarded, iso

log = logging.getLogger("holdfast.bridge")

# Where a broker with bridges says which one it is, for those who bridge to it.
ID_TOPIC: Final = b"$SYS/broker/bridges/id"
LOOK_S: Final = 0.25
NO_SNAPSHOT: Final = 2  # Retain Handling
BESIDE: Final = 0  # the number of no connection: what came over another one
WALK_PORTION: Final = 500
CONTESTED_S: Final = 30.0  # a message from there is later than one of ours that arrived there so long ago
BETWEEN_WALKS_S: Final = 10.0
BY_NAME: Final = 200

CONNECTED: Final = "connected"
CONNECTING: Final = "connecting"
RESTING: Final = "resting"
ENDED: Final = "ended"
FAILED: Final = "failed"


@dataclass
class Counts:
    sent: int = 0
    received: int = 0
    dropped: int = 0  # QoS 0 while the link was down
    looped: int = 0  # had been here before
    refused: int = 0
    cleared: int = 0  # retained messages that were gone, and now are on the other side too
    conflicts: int = 0


@dataclass(frozen=True)
class Outgoing:
    """A message that was sent. `taken` is acknowledged here once the other broker has answered; `topic` is that of a
    retained one, here.
    """

    answer: asyncio.Future[Any] | None
    number: int
    taken: Publish | None
    topic: bytes


@dataclass(frozen=True)
class Incoming:
    """A message that was published here, and is acknowledged there once that is durable. `topic` is that of one to be
    retained, here.
    """

    answer: asyncio.Future[Any] | None
    number: int
    taken: Publish
    topic: bytes


Sent = TypeVar("Sent", Outgoing, Incoming)


class Link:
    def __init__(
        self, options: BridgeOptions, driver: Driver, policy: ListenerPolicy, memory: Memory, broker_id: str
    ) -> None:
        self.options = options
        self.driver = driver
        self.memory = memory
        self.broker_id = broker_id
        self.plan = Plan(options.topics)
        self.local = LocalClient(options, driver, policy)
        self.remote = RemoteClient(options)
        self.remote.on_connected = self.on_connected
        self.remote.on_lost = self.on_lost
        self.remote.on_answer = self.on_answer
        self.echoes = Echoes()
        self.counts = Counts()
        self.state = CONNECTING
        self.failure = ""
        self.has_died = False
        self.since_ms = driver.now_ms()
        self.used_at_s = driver.loop.time()
        self.remote_id = ""
        self.is_holdfast = False
        self.named = asyncio.Event()  # a Holdfast has said which one it is, or that it does not
        self.knows_us = False  # the other broker kept our session: what is not there was deleted
        self.merging = False
        self.in_sync = False
        self.new_at_s = 0.0  # when a topic last came that was not known to be there
        self.subscribed: set[str] = set()  # filters, on this connection
        self.markers: set[str] = set()  # of these, those whose snapshot has not ended
        self.asked_since: dict[str, int] = {}
        self.unsure: set[bytes] = set()  # topics to be looked at again when nothing of them is under way
        self.crossing: Counter[bytes] = Counter()  # retained messages that go out and are not acknowledged, by topic
        self.sent_lately: OrderedDict[bytes, float] = OrderedDict()  # retained topics that go both ways, and when
        self.overruled: set[bytes] = set()  # topics under way of which the other side's value was taken
        self.holds_qos_0 = False  # one that no session counts
        self.contested: set[bytes] = set()  # topics set on both sides at once: the other side knows which came last
        self.losses = self.count_losses()
        self.walked_at_s = 0.0
        self.unproven: OrderedDict[bytes, float] = OrderedDict()  # retained, sent at QoS 0: nobody says it arrived
        self.asked_about: list[bytes] = []  # of these, those that an answer to PINGREQ will be about
        self.calm_at = -1  # the log's position when nothing was under way the last time
        self.turn = asyncio.Lock()  # to send: what is looked up is sent before anything newer
        self.turn_in = asyncio.Lock()  # to publish here, for the same reason
        self.to_acknowledge_here: asyncio.Queue[Outgoing | asyncio.Event] = asyncio.Queue()
        self.to_acknowledge_there: asyncio.Queue[Incoming | asyncio.Event] = asyncio.Queue()
        self.tasks: list[asyncio.Task[None]] = []
        self.syncing: asyncio.Task[None] | None = None

    # Life.

    def start(self) -> None:
        self.tasks.append(self.driver.loop.create_task(self.run(), name=f"bridge-{self.options.name}"))

    async def run(self) -> None:
        delay_s = self.options.retry_s
        while True:
            try:  # the broker itself may not be ready for the bridge: a right is missing, a node catches up
                await self.local.connect()
                await self.local.listen_to({t.local_filter.encode(): t.qos for t in reversed(self.plan.outward)})
                break
            except (HoldfastError, TimeoutError) as error:
                self.fail(str(error))
                await self.local.disconnect()
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, self.options.retry_max_s)
        self.set_state(CONNECTING)
        self.say_state()
        for work in (self.pump_out(), self.pump_in(), self.acknowledge_here(), self.acknowledge_there(), self.watch()):
            self.tasks.append(self.driver.loop.create_task(self.guard(work), name=f"bridge-{self.options.name}"))
        if self.options.start == LAZY:
            self.set_state(RESTING)
        else:
            self.remote.start()

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ConnectionFailed:
            pass  # the bridge has ended
        except Exception as error:
            log.exception("a bridge has failed", extra={"bridge": self.options.name})
            self.has_died = True
            self.fail(f"{type(error).__name__}: {error}")

    async def stop(self, forget: bool = False) -> None:
        """End it. The session, and what waits in it, stays unless told to `forget`."""
        if self.syncing is not None:
            self.syncing.cancel()
        await self.remote.disconnect()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, *([self.syncing] if self.syncing else []), return_exceptions=True)
        await self.local.disconnect()
        self.state = ENDED
        self.say_state()
        if forget:
            await self.remote.say_goodbye()
            if self.options.notifications:
                self.publish_state(b"")
            self.driver.end_session(self.options.local_client_id)
            self.memory.remove()
        else:
            self.memory.close()

    def fail(self, why: str) -> None:
        if why != self.failure:
            log.warning("bridge does not work", extra={"bridge": self.options.name, "error": why})
        self.failure = why
        self.set_state(FAILED)

    def set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.since_ms = self.driver.now_ms()

    def say_state(self) -> None:
        """`1` or `0`, retained, where mosquitto says it too."""
        if self.options.notifications:
            self.publish_state(b"1" if self.state == CONNECTED else b"0")

    def publish_state(self, value: bytes) -> None:
        publisher = SYSTEM
        if not self.options.state_topic.startswith("$SYS/"):
            publisher = Publisher(self.options.local_client_id, self.options.local_username, "5.0")
        self.driver.publish(publisher, self.options.state_topic.encode(), value, 0, True)

    def on_connected(self, connack: ConnAck) -> None:
        self.failure = ""
        self.set_state(CONNECTED)
        self.say_state()
        self.used_at_s = self.driver.loop.time()
        log.info("bridge connected", extra={"bridge": self.options.name, "address": self.remote.shown_address})
        self.in_sync = False
        self.is_holdfast = is_holdfast(connack)
        self.knows_us = connack.session_present
        self.subscribed.clear()
        self.markers.clear()
        self.merging = bool(self.plan.inward)
        if self.syncing is not None:
            self.syncing.cancel()
        self.syncing = self.driver.loop.create_task(self.guard_sync(), name=f"bridge-{self.options.name}-synchronise")

    def on_lost(self, why: str) -> None:
        log.warning("bridge lost", extra={"bridge": self.options.name, "error": why})
        self.in_sync = False
        self.calm_at = -1
        if self.syncing is not None:
            self.syncing.cancel()
            self.syncing = None
        for topic in self.unproven:
            self.memory.doubt(topic)
            self.unsure.add(topic)
        self.unproven.clear()
        self.asked_about = []
        self.memory.flush()
        self.set_state(ENDED if self.options.start == ONCE else CONNECTING)
        self.say_state()
        if self.options.start == ONCE:
            self.tasks.append(self.driver.loop.create_task(self.remote.rest(), name=f"bridge-{self.options.name}-end"))

    # Out.

    async def pump_out(self) -> None:
        while True:
            number, publish = await self.local.take()
            rule = self.plan.outgoing(publish.topic)
            if rule is None or self.has_been_there(publish.properties):
                self.counts.looped += rule is not None
                self.local.acknowledge(number, publish)
            elif publish.qos == 0 and not self.remote.is_connected and self.options.start != LAZY:
                self.counts.dropped += 1
                if publish.retain:
                    self.unsure.add(publish.topic)
            else:
                async with self.turn:
                    self.holds_qos_0 = publish.qos == 0
                    await self.send_out(
                        Publish(
                            publish.topic, publish.payload, publish.qos, publish.retain, properties=publish.properties
                        ),
                        rule,
                        number,
                        publish,
                    )
                    self.holds_qos_0 = False

    def has_been_there(self, properties: Properties | None) -> bool:
        """Whether a message came from the other broker, or has been here before."""
        hops = passed(properties)
        return self.broker_id in hops or (self.remote_id != "" and self.remote_id in hops) or len(hops) >= MOST_HOPS

    async def send_out(
        self, message: Publish, rule: BridgeTopic, number: int = 0, taken: Publish | None = None
    ) -> None:
        """Send a message of this broker; when the other side has it, `taken` is acknowledged here."""
        await self.remote.until_ready()
        topic, payload, properties = message.topic, message.payload, message.properties
        retain = self.keeps_there(message.retain, rule)
        to = carry(properties, rule.expiry_s, self.broker_id) if self.options.version == V5 else None
        packet = Publish(rule.to_remote(topic), payload, min(message.qos, rule.qos), retain, False, 0, to)
        content = digest(payload, properties.forward if properties is not None else b"", self.options.version)
        kept = retain and rule.retain == KEEP
        if kept:
            self.note_sent(topic, content if payload else None, packet.qos, rule)
        if self.options.version != V5 and not self.remote.is_private and self.plan.incoming(packet.topic) is not None:
            self.echoes.expect(packet.topic, content, self.driver.loop.time())
        self.used_at_s = self.driver.loop.time()
        answer: asyncio.Future[Any] | None = None
        try:
            answer = await self.remote.send(packet)
            self.counts.sent += 1
        except UsageError as error:  # larger than the other broker takes
            self.refuse(packet.topic, str(error), topic if kept else b"")
        except asyncio.CancelledError:  # the link was lost, and nobody knows whether it left
            if kept:
                self.on_crossed(topic)
                self.memory.doubt(topic)
                self.unsure.add(topic)
            raise
        self.to_acknowledge_here.put_nowait(Outgoing(answer, number, taken, topic if kept else b""))

    def note_sent(self, topic: bytes, content: bytes | None, qos: int, rule: BridgeTopic) -> None:
        """The other side is about to have this retained. If it is not what is retained here now, that may be on its
        way, or may have been dropped: the topic is looked at again.
        """
        self.memory.put(topic, content)
        self.crossing[topic] += 1
        if self.retained_digest(topic) != content:
            self.unsure.add(topic)
        now_s = self.driver.loop.time()
        if qos == 0:
            if topic in self.asked_about:
                self.asked_about.remove(topic)  # that answer will not be about this one
            note_time(self.unproven, topic, now_s, 2 * self.options.keep_alive_s)
        if rule.comes_in:
            note_time(self.sent_lately, topic, now_s, CONTESTED_S)

    def on_answer(self) -> None:
        """PINGRESP: what was sent before has arrived."""
        for topic in self.asked_about:
            self.unproven.pop(topic, None)
        self.asked_about = []

    def keeps_there(self, retain: bool, rule: BridgeTopic) -> bool:
        if rule.retain == STRIP or not self.options.outgoing_retain:
            return False
        return retain or rule.retain == SET

    def is_in_step(self, rule: BridgeTopic) -> bool:
        """Whether what is retained here is to be retained there, and nothing else."""
        return rule.retain == KEEP and self.options.outgoing_retain

    async def acknowledge_here(self) -> None:
        arrived: list[Outgoing] = []
        while True:
            one = await next_of(self.to_acknowledge_here, partial(self.let_go_here, arrived))
            if isinstance(one, asyncio.Event):
                one.set()
                continue
            reply = await one.answer if one.answer is not None else None
            if reply is not None and is_refusal(reply):
                name = one.topic or (one.taken.topic if one.taken is not None else b"")
                self.refuse(name, reason_name(reply.reason), one.topic)
            if one.topic:
                self.on_crossed(one.topic)
            arrived.append(one)

    async def let_go_here(self, arrived: list[Outgoing]) -> None:
        """Acknowledge what has arrived there, once it is noted in the file that it has."""
        self.memory.flush()
        for one in arrived:
            if one.taken is not None:
                self.local.acknowledge(one.number, one.taken)
        arrived.clear()

    def on_crossed(self, topic: bytes) -> None:
        """A retained message has arrived there, or will not."""
        self.crossing[topic] -= 1
        if self.crossing[topic] <= 0:
            del self.crossing[topic]
            if topic in self.overruled:  # ours has arrived there all the same, behind theirs
                self.overruled.discard(topic)
                self.memory.doubt(topic)
                self.unsure.add(topic)

    def refuse(self, topic: bytes, why: str, not_kept: bytes = b"") -> None:
        """Count a message that one side would not have; the retained topic `not_kept` is not the same on both then."""
        if not_kept:
            self.memory.put(not_kept, None)
        if self.counts.refused == 0:
            log.warning(
                "a message of a bridge is refused; more are counted",
                extra={"bridge": self.options.name, "topic": topic.decode(errors="replace"), "error": why},
            )
        self.counts.refused += 1

    # In.

    async def pump_in(self) -> None:
        while True:
            number, publish = await self.remote.take()
            if self.is_of_old_snapshot(number, publish):
                continue
            if publish.topic == END_TOPIC:
                await self.on_end_of_snapshot(number, json.loads(publish.payload))
            elif publish.topic == ID_TOPIC:
                self.remote_id = publish.payload.decode(errors="replace")
            else:
                async with self.turn_in:
                    await self.take_in(number, publish)

    def is_of_old_snapshot(self, number: int, publish: Publish) -> bool:
        """Whether a message came from another Holdfast over a connection before this one: this one brings what is true
        now.
        """
        if number == self.remote.connection_number or not self.is_holdfast:
            return False
        return publish.topic == END_TOPIC or (publish.retain and self.is_copy(number, publish))

    async def take_in(self, number: int, publish: Publish) -> None:
        rule = self.plan.incoming(publish.topic)
        forwarded = publish.properties.forward if publish.properties is not None else b""
        content = digest(publish.payload, forwarded, self.options.version) if rule is not None else b""
        is_copy = publish.retain and self.merging and self.is_copy(number, publish)
        if rule is None or (not is_copy and self.is_own(publish, content)):
            self.counts.looped += rule is not None
            await self.remote.acknowledge_taken(number, publish)
            return
        topic = rule.to_local(publish.topic)
        retain = (publish.retain and rule.retain == KEEP) or rule.retain == SET
        if publish.retain and self.merging:
            end = self.judge(topic, publish, content, rule)
            if end != TAKEN and is_copy:
                await self.remote.acknowledge_taken(number, publish)
                return
            retain = retain and end in (SAME, TAKEN)
        elif retain and rule.goes_out:
            retain = not self.is_ours_later(topic)
        to = carry(publish.properties, rule.expiry_s, self.remote_id)
        self.used_at_s = self.driver.loop.time()
        before = self.memory.get(topic) if retain and publish.retain else None
        try:
            self.check_limits(topic, to)
            if retain and publish.retain:
                self.memory.put(topic, content if publish.payload else None)
            answer = await self.local.send(Publish(topic, publish.payload, publish.qos, retain, False, 0, to))
        except (ProtocolError, UsageError) as error:
            if retain and publish.retain:
                self.memory.put(topic, before)
            self.refuse(publish.topic, str(error))
            self.to_acknowledge_there.put_nowait(Incoming(None, number, publish, b""))
            return
        self.counts.received += 1
        if self.merging and answer is not None and self.driver.broker.shared is not None:
            await answer  # the next one is judged by what this one has made
        kept = topic if retain and publish.payload else b""
        self.to_acknowledge_there.put_nowait(Incoming(answer, number, publish, kept))

    def check_limits(self, topic: bytes, properties: Properties) -> None:
        """Raises ProtocolError for what this broker would end the connection for: the other one would bring it again on
        the next, and nothing else would come any more. How large a message may be is asked when it is sent.
        """
        check_topic(topic, self.driver.broker.settings.max_topic_levels)
        check_user_properties(self.driver.broker, properties)

    def is_ours_later(self, topic: bytes) -> bool:
        """Whether what is retained here is on its way there: it arrives after what has come from there, so that is
        delivered and not kept. What is set on both sides at about the same time is compared later.
        """
        under_way = topic in self.crossing or self.local.waits_for(topic)
        if under_way or topic in self.sent_lately:
            self.contested.add(topic)
        self.counts.conflicts += under_way
        return under_way

    def is_copy(self, number: int, publish: Publish) -> bool:
        """Whether a retained message is of a snapshot, as far as that can be told; else somebody has just published it,
        and whoever listens is to hear it.
        """
        if number == BESIDE or self.options.version != V5:
            return True
        properties = publish.properties
        return not publish.payload or (properties is not None and properties.user_property("hf-offset") is not None)

    def is_own(self, publish: Publish, content: bytes) -> bool:
        if self.broker_id in passed(publish.properties):
            return True
        if self.options.version == V5 or self.remote.is_private:
            return False
        return self.echoes.is_echo(publish.topic, content, self.driver.loop.time())

    async def acknowledge_there(self) -> None:
        durable: list[Incoming] = []
        while True:
            one = await next_of(self.to_acknowledge_there, partial(self.let_go_there, durable))
            if isinstance(one, asyncio.Event):
                one.set()
                continue
            reply = await one.answer if one.answer is not None else None
            if reply is not None and is_refusal(reply):
                self.refuse(one.taken.topic, reason_name(reply.reason))
            if one.topic and self.retained(one.topic) is None:
                self.memory.put(one.topic, None)  # by a limit or a policy: that is no deletion to be told there
            durable.append(one)

    async def let_go_there(self, durable: list[Incoming]) -> None:
        self.memory.flush()
        for one in durable:
            await self.remote.acknowledge_taken(one.number, one.taken)
        durable.clear()

    # The retained sets.

    def retained(self, topic: bytes) -> Message | None:
        return self.driver.broker.retained.get(topic, self.driver.now_ms())

    def retained_digest(self, topic: bytes) -> bytes | None:
        message = self.retained(topic)
        return None if message is None else digest(message.payload, message.properties, self.options.version)

    def judge(self, topic: bytes, publish: Publish, content: bytes, rule: BridgeTopic) -> str:
        """What becomes of a retained message of the other side, after the link was down."""
        there = content if publish.payload else None
        both = self.memory.get(topic)
        if both is None or self.memory.see(topic):
            self.new_at_s = self.driver.loop.time()
        here = self.retained_digest(topic) if rule.retain != STRIP else both
        if there != both and self.is_theirs(topic, both):
            both = here
        if topic in self.crossing and here != there:  # ours arrives there behind theirs
            if self.options.conflict == REMOTE:
                self.overruled.add(topic)
                return TAKEN
            return LOSES
        newer = self.is_newer(topic, publish.properties)
        end = merge(here, there, both, rule.goes_out, self.options.conflict, newer)
        if end == SAME or rule.retain == STRIP:
            self.memory.put(topic, there)
        elif rule.goes_out and end in (STAYS, LOSES):
            self.counts.conflicts += end == LOSES
            self.unsure.add(topic)
        return end

    def is_theirs(self, topic: bytes, both: bytes | None) -> bool:
        """Whether what is retained here came over this bridge, so that nobody has changed it here. The message itself
        says so, whatever a crash has left of `both`, what was noted of it. If that is in doubt, so is this: the other
        broker may have lost what it had.
        """
        if both == DOUBTED or (both is None and not self.knows_us):
            return False
        message = self.retained(topic)
        return message is not None and message.publisher.client_id == self.options.local_client_id

    def is_newer(self, topic: bytes, properties: Properties | None) -> bool | None:
        """Whether the other side's message was stored later than ours; None where it does not say."""
        stored = properties.user_property("hf-stored-at") if properties is not None else None
        message = self.retained(topic)
        if stored is None or message is None:
            return None
        return stored > iso(message.stored_at_ms)

    async def guard_sync(self) -> None:
        """Try until it works, or the connection ends: a look at the other broker can fail, or a right be missing, while
        the connection stays.
        """
        delay_s = self.options.retry_s
        number = self.remote.connection_number
        has_begun = False
        while self.remote.is_connected and number == self.remote.connection_number:
            try:
                if not has_begun:
                    await self.begin_sync()
                    has_begun = True
                await self.synchronise()
                return
            except HoldfastError as error:
                self.note_failure(number, str(error))
            except Exception as error:
                log.exception("a bridge has failed to synchronise", extra={"bridge": self.options.name})
                self.note_failure(number, f"{type(error).__name__}: {error}")
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, self.options.retry_max_s)

    def note_failure(self, number: int, why: str) -> None:
        """The sets could not be compared on the connection of that number; the next one knows nothing of it."""
        if number == self.remote.connection_number and why != self.failure:
            log.warning("bridge cannot synchronise", extra={"bridge": self.options.name, "error": why})
            self.failure = why

    async def begin_sync(self) -> None:
        """What is to be done once for a connection."""
        if not self.knows_us and not self.options.clean_session and self.memory.fact("met") == "yes":
            await self.doubt_all()
        self.memory.set_fact("met", "yes")
        await self.note_plan()
        self.memory.next_generation()
        self.new_at_s = self.driver.loop.time()

    async def synchronise(self) -> None:
        if self.plan.inward:
            await self.subscribe()
            await self.until_snapshot_is_through()
            await reached(self.to_acknowledge_there)
        self.merging = False
        await self.send_changes()
        self.in_sync = True
        self.failure = ""
        self.memory.flush()
        log.info("bridge synchronised", extra={"bridge": self.options.name})

    async def note_plan(self) -> None:
        """With other lines than before other topics meet: all of them are compared anew."""
        plan = json.dumps([self.options.version, *map(str, self.options.topics)])
        before = self.memory.fact("plan")
        if before is not None and before != plan:
            self.memory.forget_facts("since ")
            await self.doubt_all()
        self.memory.set_fact("plan", plan)

    async def doubt_all(self) -> None:
        """Send again what goes out: the other broker has forgotten us, maybe its messages too, or the lines changed."""
        self.memory.set_fact("local version", "0")
        for portion in self.memory.topics():
            for topic in portion:
                if self.plan.outgoing(topic) is not None:
                    self.memory.doubt(topic)
            await asyncio.sleep(0)

    async def subscribe(self) -> None:
        wanted = {rule.remote_filter for rule in self.plan.inward}
        before = set(json.loads(self.memory.fact("subscribed") or "[]"))
        if before - wanted:
            await self.remote.unsubscribe([one.encode() for one in sorted(before - wanted)])
        is_v5 = self.options.version == V5
        if self.is_holdfast:
            self.named.clear()
            answer = await self.remote.subscribe([SubscriptionRequest(ID_TOPIC, 0)])
            if answer.reasons[0] < 0x80:  # else the bridge may not know, and hops alone tell where a message was
                await self.named.wait()
        for rule in self.plan.inward:
            if rule.remote_filter in self.subscribed:
                continue
            # Where the snapshot is read beside, it does not fill the queue of what is published meanwhile.
            handling = 0 if self.is_holdfast or not is_v5 else NO_SNAPSHOT
            request = SubscriptionRequest(rule.remote_filter.encode(), rule.qos, is_v5, is_v5, handling)
            properties: Properties | None = None
            since = self.memory.fact(f"since {rule.remote_filter}")
            if self.is_holdfast and since is not None:
                self.asked_since[rule.remote_filter] = int(since)
                properties = Properties()
                properties.user_properties = [("holdfast-since", since)]
            self.markers.add(rule.remote_filter)
            check_granted(await self.remote.subscribe([request], properties), rule)
            self.subscribed.add(rule.remote_filter)
        self.memory.set_fact("subscribed", json.dumps(sorted(wanted)))

    async def until_snapshot_is_through(self) -> None:
        if self.is_holdfast:
            while self.markers:
                await asyncio.sleep(LOOK_S)
            return
        if self.options.version == V5:
            await self.read_beside(max(rule.qos for rule in self.plan.inward))
        else:
            while self.driver.loop.time() - self.new_at_s < self.options.quiet_s or self.remote.waiting:
                await asyncio.sleep(LOOK_S)
        await self.read_beside(0)
        if self.knows_us:
            await self.find_gone_by_name()

    async def on_end_of_snapshot(self, number: int, told: dict[str, Any]) -> None:
        """Another Holdfast has sent what it has, or what has changed, of one filter, on the connection of that number.
        The next connection has a generation of its own.
        """
        self.named.set()
        topic_filter, version = str(told["filter"]), int(told["version"])
        if topic_filter not in self.markers:
            return
        generation = self.memory.generation
        await reached(self.to_acknowledge_there)
        await self.driver.durable()
        if told["full"] and version >= self.asked_since.pop(topic_filter, 0):
            levels = topic_filter.encode().split(b"/")
            for portion in self.memory.topics(generation):
                for topic in portion:
                    rule = self.plan.incoming_here(topic)
                    if rule is not None and matches(levels, rule.to_remote(topic).split(b"/")):
                        async with self.turn_in:
                            await self.take_gone(topic, rule)
                await asyncio.sleep(0)
        self.memory.set_fact(f"since {topic_filter}", str(version))
        if number == self.remote.connection_number:
            self.markers.discard(topic_filter)

    async def read_beside(self, qos: int) -> None:
        """Read the snapshot of another broker on a connection of its own: some stop at a queue limit at QoS 1 and 2,
        and do not say so, but not at QoS 0. Only what has not come otherwise counts: between two connections there is
        no order.
        """
        async for publish in self.look([rule.remote_filter.encode() for rule in self.plan.inward], qos):
            rule = self.plan.incoming(publish.topic)
            if rule is None:
                continue
            async with self.turn_in:
                if not self.memory.is_seen(rule.to_local(publish.topic)):
                    publish.qos = min(qos, publish.qos) if qos else min(1, rule.qos)  # which was it published with?
                    await self.take_in(BESIDE, publish)

    async def find_gone_by_name(self) -> None:
        """Ask another broker for each topic that was not there: only an answer about it alone is an answer."""
        for portion in self.memory.topics(self.memory.generation):
            rules = {topic: self.plan.incoming_here(topic) for topic in portion}
            names = {rule.to_remote(topic): topic for topic, rule in rules.items() if rule is not None}
            wanted = list(names)
            for start in range(0, len(wanted), BY_NAME):
                asked = wanted[start : start + BY_NAME]
                there = await self.look_for(asked)
                for name in asked:
                    rule = rules[names[name]]
                    async with self.turn_in:
                        if name not in there and rule is not None and not self.memory.is_seen(names[name]):
                            await self.take_gone(names[name], rule)

    async def look_for(self, names: list[bytes]) -> dict[bytes, Publish]:
        """What the other broker has of these topics."""
        found: dict[bytes, Publish] = {}
        async with contextlib.aclosing(self.look(names, 0)) as told:
            async for publish in told:
                found[publish.topic] = publish
                if len(found) == len(names):
                    break
        return found

    async def look(self, filters: list[bytes], qos: int) -> AsyncGenerator[Publish, None]:
        """What is retained on the other broker, as another client of it is told, until no more of it comes. What is
        published meanwhile is no part of it, however much that is.
        """
        options = replace(
            self.remote.make_options(),
            client_id=f"{self.options.client_id}-look",
            clean_start=True,
            will=None,
            properties=None,
            is_bridge=False,
            reconnect=False,
        )
        async with Client(self.remote.endpoint, options) as client:
            await client.subscribe([SubscriptionRequest(one, qos) for one in filters])
            now = self.driver.loop.time
            ends_at = now() + self.options.quiet_s
            while (left_s := ends_at - now()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        publish = await client.receive()
                except TimeoutError:
                    return
                if publish.retain:
                    yield publish
                    ends_at = now() + self.options.quiet_s

    async def take_gone(self, topic: bytes, rule: BridgeTopic) -> None:
        """The other side has deleted a topic while the link was down."""
        both = self.memory.get(topic)
        here = self.retained_digest(topic)
        if here is not None and here != both and rule.goes_out and not self.is_theirs(topic, both):
            self.unsure.add(topic)  # it was changed here as well: a value comes before a deletion
            self.memory.doubt(topic)
            return
        self.memory.put(topic, None)
        if here is not None and rule.retain != STRIP:
            self.counts.cleared += 1
            answer = await self.local.send(Publish(topic, b"", 1, True))
            if answer is not None:
                await answer

    async def resolve_contested(self) -> None:
        """Ask the other side what it has of contested topics: it has put both values into an order."""
        calm = [t for t in self.contested if t not in self.crossing and not self.local.waits_for(t)][:BY_NAME]
        rules = {topic: rule for topic in calm if (rule := self.plan.outgoing(topic)) is not None}
        self.contested.difference_update(calm)
        if not rules:
            return
        before = {topic: self.memory.get(topic) for topic in rules}
        names = {rule.to_remote(topic): topic for topic, rule in rules.items()}
        try:
            found = {names[name]: publish for name, publish in (await self.look_for(list(names))).items()}
        except HoldfastError:
            self.contested.update(rules)
            raise
        for topic, rule in rules.items():
            async with self.turn_in:
                under_way = topic in self.crossing or self.local.waits_for(topic)
                if under_way or self.memory.get(topic) != before[topic]:
                    self.contested.add(topic)  # it has changed meanwhile
                else:
                    await self.adopt(topic, found.get(topic), rule)

    async def adopt(self, topic: bytes, publish: Publish | None, rule: BridgeTopic) -> None:
        """Have what the other side has."""
        forwarded = publish.properties.forward if publish is not None and publish.properties is not None else b""
        there = digest(publish.payload, forwarded, self.options.version) if publish is not None else None
        self.memory.put(topic, there)
        if there == self.retained_digest(topic):
            return
        payload = publish.payload if publish is not None else b""
        to = carry(publish.properties if publish is not None else None, rule.expiry_s, self.remote_id)
        answer = await self.local.send(Publish(topic, payload, min(1, rule.qos), True, False, 0, to))
        if answer is not None:
            await answer

    async def send_changes(self) -> None:
        """Send what was set here since the last time, and clear what is gone. Nothing that is there already."""
        position = self.driver.broker.log.position
        since = int(self.memory.fact("local version") or 0)
        index = self.driver.broker.retained.index
        for rule in self.plan.outward:
            if not self.is_in_step(rule):
                continue
            cursor = index.cursor(rule.local_filter.encode(), position)
            try:
                while not cursor.ended:
                    for message in collect(cursor, Query(), self.driver.now_ms(), WALK_PORTION, WALK_PORTION):
                        if message.offset > since and self.plan.outgoing(message.topic) is rule:
                            await self.send_retained(message.topic)
                    await asyncio.sleep(0)
            finally:
                index.release(cursor)
        for portion in self.memory.topics():
            for topic in portion:
                if self.retained(topic) is None:
                    await self.send_retained(topic)
            await asyncio.sleep(0)
        await reached(self.to_acknowledge_here)
        self.memory.set_fact("local version", str(position))

    async def send_retained(self, topic: bytes) -> None:
        """Make the other side have what is retained here, if it has something else."""
        rule = self.plan.outgoing(topic)
        self.unsure.discard(topic)
        if rule is None or not self.is_in_step(rule):
            return
        async with self.turn:
            if self.local.waits_for(topic):
                self.unsure.add(topic)
                return
            message = self.retained(topic)
            both = self.memory.get(topic)
            if message is None:
                if both is not None:
                    self.counts.cleared += 1
                    await self.send_out(Publish(topic, b"", 1, True), in_any_case(rule))
                return
            if both == digest(message.payload, message.properties, self.options.version):
                return
            properties = decode_forwarded(message.properties)
            properties.forward = message.properties
            if message.expires_at_ms:
                properties.message_expiry = seconds_left(message.expires_at_ms, self.driver.now_ms())
            if not self.has_been_there(properties):
                qos = max(1, min(message.qos, rule.qos))  # it is known then that it has arrived
                again = Publish(topic, message.payload, qos, True, properties=properties)
                await self.send_out(again, in_any_case(rule))

    def count_losses(self) -> int:
        counters = self.driver.broker.counters
        expired: int = self.driver.broker.retained.expired
        return counters.dropped_slow + counters.dropped_queue_full + expired

    # Time.

    async def watch(self) -> None:
        """What has to be looked after now and then: topics to check, idle links, the first address."""
        probed_at_s = self.driver.loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = self.driver.loop.time()
            if self.options.start == LAZY:
                await self.rest_or_wake(now_s)
            if not self.remote.is_connected:
                continue
            if self.unproven and not self.asked_about and self.remote.ask_for_answer():
                self.asked_about = list(self.unproven)
            if self.in_sync:
                with contextlib.suppress(HoldfastError):  # it could not look, and will try again
                    await self.look_again()
            on_first = self.remote.address % len(self.options.addresses) == 0
            if not on_first and not self.options.round_robin and now_s - probed_at_s > self.options.retry_max_s:
                probed_at_s = now_s
                if await self.remote.first_answers():
                    self.remote.drop()

    async def look_again(self) -> None:
        for topic in list(self.unsure):
            await self.send_retained(topic)
        if self.contested:
            await self.resolve_contested()
        losses = self.count_losses()
        now_s = self.driver.loop.time()
        if losses != self.losses and now_s - self.walked_at_s > BETWEEN_WALKS_S:
            # Some message of somebody was dropped, or has expired: it may have been one of these.
            self.losses = losses
            self.walked_at_s = now_s
            await self.send_changes()
        calm = not self.unsure and not self.contested and self.local.waiting_messages == 0 and not self.crossing
        if calm and self.calm_at >= 0:
            self.memory.set_fact("local version", str(self.calm_at))
        self.calm_at = self.driver.broker.log.position if calm else -1
        self.memory.flush()

    @property
    def waiting(self) -> int:
        return self.local.waiting_messages + self.holds_qos_0

    async def rest_or_wake(self, now_s: float) -> None:
        if not self.remote.is_started:
            if self.waiting >= self.options.threshold:
                self.set_state(CONNECTING)
                self.remote.start()
        elif self.remote.is_connected and now_s - self.used_at_s > self.options.idle_timeout_s:
            if self.local.waiting_messages == 0:
                await self.remote.rest()
                self.in_sync = False
                self.set_state(RESTING)
                self.say_state()

    def status(self) -> dict[str, Any]:
        options, counts = self.options, self.counts
        return {
            "name": options.name,
            "state": self.state,
            "since_ms": self.since_ms,
            "address": self.remote.shown_address,
            "error": self.failure or self.remote.trouble,
            "in_sync": self.in_sync,
            "holdfast": self.is_holdfast,
            "waiting": self.waiting,
            "waiting_bytes": self.local.waiting_bytes,
            "connects": self.remote.connects,
            "sent": counts.sent,
            "received": counts.received,
            "dropped": counts.dropped,
            "looped": counts.looped,
            "refused": counts.refused,
            "cleared": counts.cleared,
            "conflicts": counts.conflicts,
            "remembered": self.memory.count,
            "not_remembered": self.memory.left_out,
            "topics": [str(topic) for topic in options.topics],
        }


def in_any_case(rule: BridgeTopic) -> BridgeTopic:
    """The line, but at a QoS with an answer."""
    return rule if rule.qos else replace(rule, qos=1)


def note_time(times: OrderedDict[bytes, float], topic: bytes, now_s: float, lasts_s: float) -> None:
    """Note when a topic was sent last, and forget those of long ago."""
    times[topic] = now_s
    times.move_to_end(topic)
    while times and next(iter(times.values())) < now_s - lasts_s:
        times.popitem(last=False)


async def next_of(
    queue: "asyncio.Queue[Sent | asyncio.Event]", let_go: Callable[[], Coroutine[Any, Any, None]]
) -> "Sent | asyncio.Event":
    """The next of what was sent. Those before it are let go together, when it has to be waited for."""
    if queue.empty():
        await let_go()
    one = await queue.get()
    if isinstance(one, asyncio.Event) or (one.answer is not None and not one.answer.done()):
        await let_go()
    return one


async def reached(queue: "asyncio.Queue[Any]") -> None:
    """Return when everything that is in the queue now has been seen to."""
    mark = asyncio.Event()
    queue.put_nowait(mark)
    await mark.wait()


def check_granted(answer: SubAck, rule: BridgeTopic) -> None:
    if any(reason >= 0x80 for reason in answer.reasons):
        raise UsageError(f"the other broker refuses a subscription to {rule.remote_filter!r}; may this user read it?")
