"""The hop mark of MQTT 3.1.1, where nothing can be added to a message: what was sent and will come back.

MQTT 5 has No Local, and 3.1.1 has the bridge bit where the other broker knows it. Without both, a broker returns each
message of a topic that goes both ways. So it is counted what was sent, by topic and payload, and as many of the same
are taken for our own when they come. A message that does not come back is forgotten after a while.
"""

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
LIFETIME_S: Final = 60.0


class Echoes:
    def __init__(self) -> None:
        self.expected: OrderedDict[tuple[bytes, bytes], tuple[int, float]] = OrderedDict()

    def expect(self, topic: bytes, digest: bytes, now_s: float) -> None:
        key = (topic, digest)
        count, _ = self.expected.pop(key, (0, 0.0))
        self.expected[key] = (count + 1, now_s)
        while self.expected:
            oldest = next(iter(self.expected))
            if len(self.expected) <= MOST and self.expected[oldest][1] > now_s - LIFETIME_S:
                break
            del self.expected[oldest]

    def is_echo(self, topic: bytes, digest: bytes, now_s: float) -> bool:
        """Whether this is one of ours; each counts once."""
        key = (topic, digest)
        count, sent_s = self.expected.get(key, (0, 0.0))
        if count == 0 or sent_s <= now_s - LIFETIME_S:
            return False
        if count == 1:
            del self.expected[key]
        else:
            self.expected[key] = (count - 1, sent_s)
        return True
