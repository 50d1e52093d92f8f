"""When stored messages expire: messages in buckets of a tenth of a second, buckets in a heap.

A message that is replaced or deleted leaves its bucket at once, so a topic that is written every second with a lifetime
of a day holds one message, not a day of them.
"""

from heapq import heappop, heappush
from typing import Final, final

from holdfast.broker.message import NEVER, Message

BUCKET_MS: Final = 100


@final
class Expiry:
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
        """False when it has been taken out already: it expired, and is only still to be seen on a disk."""
        if message.expires_at_ms == NEVER:
            return True
        bucket = self.buckets.get(message.expires_at_ms // BUCKET_MS)
        return bucket is not None and bucket.pop(message.topic_field, None) is not None

    def overdue(self, now_ms: int) -> int:
        """How many messages have expired and are still here."""
        count = 0
        last = now_ms // BUCKET_MS
        open_places = [0]  # walk only the part of the heap that is due
        while open_places:
            place = open_places.pop()
            if place >= len(self.keys) or self.keys[place] > last:
                continue
            bucket = self.buckets[self.keys[place]]
            if self.keys[place] < last:
                count += len(bucket)
            else:
                for message in bucket.values():
                    if message.expires_at_ms <= now_ms:
                        count += 1
            open_places.append(2 * place + 1)
            open_places.append(2 * place + 2)
        return count

    def take(self, now_ms: int) -> Message | None:
        """One expired message, no longer kept here; None when no bucket is wholly in the past."""
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

    def due(self, now_ms: int) -> list[Message]:
        """What has expired in the bucket of this moment; the ones before it are `take`n."""
        bucket = self.buckets.get(now_ms // BUCKET_MS)
        if bucket is None:
            return []
        return [message for message in bucket.values() if message.expires_at_ms <= now_ms]

    def next_due_ms(self) -> int:
        """When to look again; 0 when nothing expires."""
        return (self.keys[0] + 1) * BUCKET_MS if self.keys else NEVER
