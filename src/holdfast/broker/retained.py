"""The retained set: what is kept for each topic, and the verdict on each publish that wants to be kept.

`judge` decides and changes nothing, `decide` makes room for it first and counts, `apply` carries out. They ask for no
clock but the publish's own, so every fold of the same publishes comes to the same set; and the verdict is written to
the log with the publish, so a fold that knows no limits can follow it.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from holdfast.broker.index import Index
from holdfast.broker.message import (
    CLEARED,
    NEVER,
    REFUSED_BUDGET,
    REFUSED_COUNT,
    REFUSED_POLICY,
    REFUSED_SIZE,
    SET,
    Message,
    Publisher,
)
from holdfast.broker.ports import TopicIndex
from holdfast.broker.settings import STORE, Policy, Settings

SYSTEM: Final = b"$SYS/"
DOLLAR: Final = 0x24
SWEEP_MOST: Final = 10_000
MAX_COMPACTION_COST: Final = 20_000  # of the index, in one portion of expiry
BUCKET_MS: Final = 100  # of expiry
BLOCK: Final = 512  # deletions that are sealed together
OFFSET_SIZE: Final = 8


@final
class Usage:
    def __init__(self) -> None:
        self.messages = 0
        self.size = 0


@final
class RetainedStore:
    """Invariants: `count` and `size` are the sums over the index, `$SYS` left out; `version` is the offset of the last
    change, expiry included.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.index: TopicIndex = Index()
        self.in_memory = True
        self.expiry = Expiry()
        self.version = 0
        self.count = 0
        self.size = 0
        self.users: dict[str, Usage] = {}
        self.tombstones = Tombstones()
        self.sets = 0
        self.deletes = 0
        self.expired = 0
        self.refused = [0] * 7  # by outcome

    def get(self, topic: bytes, now_ms: int) -> Message | None:
        message = self.index.get(topic)
        if message is None or message.expired(now_ms):
            return None
        return message

    def live_count(self, now_ms: int) -> int:
        """Return the number of messages that a subscriber could still be sent, without those that have expired."""
        return self.count - self.expiry.overdue(now_ms)

    def policies_for(self, topic_levels: list[bytes]) -> list[Policy] | None:
        """Return the policies whose filter matches, in order, or None when there are none (the common case)."""
        found: list[Policy] | None = None
        for policy in self.settings.policies:
            if policy.covers(topic_levels):
                if found is None:
                    found = []
                found.append(policy)
        return found

    def decide(self, message: Message, policy: Policy | None, now_ms: int) -> int:
        """Return the outcome of a publish with RETAIN 1. What has expired is removed where it stands in the way, and
        refusals are counted.
        """
        outcome = self.judge(message, policy, now_ms)
        if outcome == REFUSED_BUDGET and self.sweep(now_ms, message.offset) > 0:
            outcome = self.judge(message, policy, now_ms)
        return self.refuse(outcome) if outcome >= REFUSED_SIZE else outcome

    def refuse(self, outcome: int) -> int:
        """Count a refusal; returns the outcome that it was given."""
        self.refused[outcome] += 1
        return outcome

    def judge(self, message: Message, policy: Policy | None, now_ms: int) -> int:
        """Return the outcome that a publish with RETAIN 1 would have, and change nothing.

        The bytes of expired messages count until these are swept.
        """
        if len(message.payload) == 0:
            return CLEARED
        if message.topic_field[2] == DOLLAR and message.topic_field.startswith(SYSTEM, 2):
            return SET  # the broker's own topics are outside every limit
        settings = self.settings
        if policy is not None and policy.action != STORE:
            return REFUSED_POLICY
        if 0 < settings.max_retained_payload < len(message.payload):
            return REFUSED_SIZE
        if not self.has_limits(policy):
            return SET
        old = self.get(message.topic, now_ms)
        if old is None and 0 < settings.max_retained_messages <= self.live_count(now_ms):
            return REFUSED_COUNT
        return SET if self.fits(message, old, policy) else REFUSED_BUDGET

    def has_limits(self, policy: Policy | None) -> bool:
        settings = self.settings
        return (
            settings.max_retained_messages > 0
            or settings.max_retained_bytes > 0
            or settings.max_retained_per_user > 0
            or settings.max_retained_bytes_per_user > 0
            or (policy is not None and policy.has_budget)
        )

    def fits(self, message: Message, old: Message | None, policy: Policy | None) -> bool:
        """Return whether the byte and message budgets have room. Replacing by something no larger always fits."""
        settings = self.settings
        more = message.size() - (old.size() if old is not None else 0)
        one = 1 if old is None else 0
        if more > 0 and 0 < settings.max_retained_bytes < self.size + more:
            return False
        username = message.publisher.username
        if settings.max_retained_per_user > 0 or settings.max_retained_bytes_per_user > 0:
            usage = self.users.get(username)
            messages = usage.messages if usage is not None else 0
            size = usage.size if usage is not None else 0
            mine = old is not None and old.publisher.username == username
            user_one = 0 if mine else 1
            user_more = more if mine else message.size()
            if user_one > 0 and 0 < settings.max_retained_per_user < messages + user_one:
                return False
            if user_more > 0 and 0 < settings.max_retained_bytes_per_user < size + user_more:
                return False
        if policy is not None:
            if one > 0 and 0 < policy.max_messages < policy.usage_messages + one:
                return False
            if more > 0 and 0 < policy.max_bytes < policy.usage_bytes + more:
                return False
        return True

    def recount(self) -> None:
        """Count again who uses what, after a change of settings. Nothing is deleted, only new topics are refused."""
        self.users.clear()
        for policy in self.settings.policies:
            policy.usage_messages = 0
            policy.usage_bytes = 0
        if not self.has_limits(None) and not any(policy.has_budget for policy in self.settings.policies):
            return
        self.count = 0
        self.size = 0
        cursor = self.index.everything()
        while not cursor.ended:
            message = cursor.next(1 << 30)
            if message is not None:
                self.charge(message, 1)
        self.index.release(cursor)

    def lifetime(self, message: Message, policy: Policy | None, now_ms: int) -> Message:
        """Return the message as it is stored: with the publisher's interval, else the policy's, else the default."""
        if message.interval_given:
            return message
        ttl_ms = self.settings.retained_expiry_ms
        if policy is not None and policy.ttl_ms > 0:
            ttl_ms = policy.ttl_ms
        return message.expiring(now_ms + ttl_ms) if ttl_ms > 0 else message

    def apply(self, message: Message, levels: list[bytes], outcome: int, policy: Policy | None, now_ms: int) -> Message:
        """Carry out the verdict; returns the message as it is stored, which is what the log is told."""
        if outcome == SET:
            if message.interval_given and message.expires_at_ms <= now_ms:
                self.clear(message.topic, message.offset)  # an interval of 0 replaces and is gone
            else:
                message = self.lifetime(message, policy, now_ms)
                self.put(message, levels)
        elif outcome == CLEARED:
            self.clear(message.topic, message.offset)
        return message

    def put(self, message: Message, levels: list[bytes]) -> None:
        old = self.index.put(message, levels)
        if old is not None and self.expiry.discard(old):
            self.charge(old, -1)
        if message.expires_at_ms != NEVER:
            self.expiry.add(message if self.in_memory else message.without_payload())
        if self.charge(message, 1):
            self.version = message.offset
            self.sets += 1

    def put_all(self, messages: list[Message], now_ms: int) -> None:
        """Add messages that were stored before, without those that have expired meanwhile."""
        for message in messages:
            if not message.expired(now_ms):
                self.put(message, message.topic.split(b"/"))

    def charge_all(self, messages: list[Message], now_ms: int) -> None:
        """Count messages as `put_all` does, which stay where they are."""
        for message in messages:
            if not message.expired(now_ms):
                self.charge(message, 1)

    def clear(self, topic: bytes, offset: int) -> bool:
        old = self.index.remove(topic, offset)
        if old is None or not self.expiry.discard(old):
            return False
        self.forget(old, offset)
        self.deletes += 1
        return True

    def forget(self, old: Message, offset: int) -> None:
        self.charge(old, -1)
        self.version = offset
        self.tombstones.add(old.topic_field, offset, self.settings.max_tombstones)

    def charge(self, message: Message, sign: int) -> bool:
        """Count a message in (1) or out (-1) of all sums it is part of; returns False for `$SYS`, which is in none."""
        field = message.topic_field
        if field[2] == DOLLAR and field.startswith(SYSTEM, 2):
            return False
        size = message.size() if sign > 0 else -message.size()
        self.count += sign
        self.size += size
        settings = self.settings
        if settings.max_retained_per_user > 0 or settings.max_retained_bytes_per_user > 0:
            self.charge_user(message.publisher, sign, size)
        if settings.policies:
            levels = message.topic.split(b"/")
            for policy in settings.policies:
                if policy.has_budget and policy.covers(levels):
                    policy.usage_messages += sign
                    policy.usage_bytes += size
        return True

    def charge_user(self, publisher: Publisher, sign: int, size: int) -> None:
        usage = self.users.get(publisher.username)
        if usage is None:
            usage = Usage()
            self.users[publisher.username] = usage
        usage.messages += sign
        usage.size += size
        if usage.messages == 0:
            del self.users[publisher.username]

    def expire(self, now_ms: int, offset: int, most: int) -> int:
        """Remove up to `most` expired messages, as of version `offset`, fewer where that makes the index compact a
        lot; returns the number of messages removed.
        """
        count = 0
        enough = self.index.compaction_cost + MAX_COMPACTION_COST
        while count < most and self.index.compaction_cost < enough:
            message = self.expiry.pop(now_ms)
            if message is None:
                break
            count += 1
            self.drop_expired(message, offset)
        return count

    def sweep(self, now_ms: int, offset: int) -> int:
        """Remove what has expired to the millisecond, where a verdict depends on it; returns the number removed."""
        count = self.expire(now_ms, offset, SWEEP_MOST)
        for message in self.expiry.due(now_ms):
            self.expiry.discard(message)
            self.drop_expired(message, offset)
            count += 1
        return count

    def drop_expired(self, message: Message, offset: int) -> None:
        stored = self.index.get(message.topic)
        if stored is not None and stored.offset == message.offset:
            self.index.remove(message.topic, offset)
            self.forget(stored, offset)
            self.expired += 1


@final
class Expiry:
    """When stored messages expire: messages in buckets of a tenth of a second, buckets in a heap.

    A message that is replaced or deleted leaves its bucket at once, so a topic that is written every second with a
    lifetime of a day holds one message, not a day of them.
    """

    def __init__(self) -> None:
        self.buckets: dict[int, dict[bytes, Message]] = {}
        self.keys: list[int] = []

    def add(self, message: Message) -> None:
        if message.expires_at_ms == NEVER:
            return
        key = message.expires_at_ms // BUCKET_MS
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = {}
            self.buckets[key] = bucket
            heappush(self.keys, key)
        bucket[message.topic_field] = message

    def discard(self, message: Message) -> bool:
        """Remove a message; returns False when it has expired and been removed before, though a disk still shows it."""
        if message.expires_at_ms == NEVER:
            return True
        bucket = self.buckets.get(message.expires_at_ms // BUCKET_MS)
        return bucket is not None and bucket.pop(message.topic_field, None) is not None

    def overdue(self, now_ms: int) -> int:
        """Return the number of messages that have expired and are still here."""
        count = 0
        last = now_ms // BUCKET_MS
        open_slots = [0]  # walk only the part of the heap that is due
        while open_slots:
            slot = open_slots.pop()
            if slot >= len(self.keys) or self.keys[slot] > last:
                continue
            bucket = self.buckets[self.keys[slot]]
            if self.keys[slot] < last:
                count += len(bucket)
            else:
                for message in bucket.values():
                    if message.expires_at_ms <= now_ms:
                        count += 1
            open_slots.append(2 * slot + 1)
            open_slots.append(2 * slot + 2)
        return count

    def pop(self, now_ms: int) -> Message | None:
        """Remove one expired message and return it, or None when no bucket is wholly in the past."""
        while self.keys:
            key = self.keys[0]
            if (key + 1) * BUCKET_MS > now_ms:
                return None
            bucket = self.buckets[key]
            if bucket:
                return bucket.popitem()[1]
            heappop(self.keys)
            del self.buckets[key]
        return None

    def is_due(self, now_ms: int) -> bool:
        """Return whether `pop` would find something, or an empty bucket to forget."""
        return len(self.keys) > 0 and (self.keys[0] + 1) * BUCKET_MS <= now_ms

    def due(self, now_ms: int) -> list[Message]:
        """Return what has expired in the bucket of this moment; earlier buckets are emptied with `pop`."""
        bucket = self.buckets.get(now_ms // BUCKET_MS)
        if bucket is None:
            return []
        return [message for message in bucket.values() if message.expires_at_ms <= now_ms]


@final
class Deletion:
    def __init__(self, topic_field: bytes, offset: int) -> None:
        self.topic_field: Final = topic_field
        self.offset: Final = offset


@final
class Block:
    """Sealed deletions: topic fields one after another, each with its length in front, and their offsets, eight bytes
    each.
    """

    def __init__(self, topics: bytes, offsets: bytes, count: int, last: int) -> None:
        self.topics: Final = topics
        self.offsets: Final = offsets
        self.count: Final = count
        self.last: Final = last


@final
class Tombstones:
    """Topics that stopped being retained, for subscribers that ask what changed since an offset.

    Kept in sealed blocks of bytes, not as objects: a hundred thousand small long-lived objects would be spread over all
    of the memory that a mass delete has just freed, and keep it from being given back.

    Invariants: in offset order; complete after `known_since`.
    """

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.topics: list[bytes] = []
        self.offsets: list[int] = []
        self.count = 0
        self.known_since = 0

    def add(self, topic_field: bytes, offset: int, most: int) -> None:
        """Remember a deletion; the oldest are forgotten once there are more than `most`."""
        if most == 0:
            self.known_since = offset
            return
        self.topics.append(topic_field)
        self.offsets.append(offset)
        self.count += 1
        if len(self.topics) >= BLOCK:
            self.seal()
        while self.count > most:
            self.forget()

    def forget(self) -> None:
        """Forget the oldest deletions: a whole block of them, if there is one."""
        if self.blocks:
            block = self.blocks.popleft()
            self.count -= block.count
            self.known_since = block.last
        else:
            self.count -= 1
            self.known_since = self.offsets.pop(0)
            del self.topics[0]

    def seal(self) -> None:
        offsets = b"".join([offset.to_bytes(OFFSET_SIZE, "big") for offset in self.offsets])
        self.blocks.append(Block(b"".join(self.topics), offsets, len(self.topics), self.offsets[-1]))
        self.topics = []
        self.offsets = []

    def read(self, after: int) -> list[Deletion]:
        """Return the next deletions after an offset, a block of them at most; none at the end."""
        found: list[Deletion] = []
        for block in self.blocks:
            if block.last > after:
                position = 0
                for i in range(block.count):
                    end = position + 2 + (block.topics[position] << 8 | block.topics[position + 1])
                    at = int.from_bytes(block.offsets[i * OFFSET_SIZE : (i + 1) * OFFSET_SIZE], "big")
                    if at > after:
                        found.append(Deletion(block.topics[position:end], at))
                    position = end
                return found
        for i in range(len(self.topics)):
            if self.offsets[i] > after:
                found.append(Deletion(self.topics[i], self.offsets[i]))
        return found
