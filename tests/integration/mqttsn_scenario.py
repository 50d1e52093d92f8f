"""What a sensor with the `mqttsn` package does, in a process of its own: `python mqttsn_scenario.py PORT`.

The package leaves threads and sockets behind and prints as it goes, so it is kept away from the tests. The last line
is the outcome as JSON.
"""

import json
import sys
import time
from collections.abc import Callable

from mqttsn.client import Callback, Client


class Inbox(Callback):  # type: ignore[misc]  # the package has no types
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[list[object]] = []
        self.done: list[int] = []

    def message_arrived(self, topic_name: bytes | str, payload: bytes, qos: int, retained: int, msgid: int) -> bool:
        name = topic_name.decode() if isinstance(topic_name, bytes) else topic_name
        self.messages.append([name, payload.decode(), qos, bool(retained)])
        return True

    def published(self, msgid: int) -> None:
        self.done.append(msgid)

    def of(self, topic: str) -> list[list[object]]:
        return [message for message in self.messages if message[0] == topic]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def main() -> None:
    inbox = Inbox()
    client = Client(b"theirs", host="127.0.0.1", port=int(sys.argv[1]))
    client.register_callback(inbox)
    client.connect()
    granted, topic_id = client.subscribe("their/topic", 1)
    sent = []
    for qos, payload in ((1, b"one"), (2, b"two")):
        sent.append(client.publish(topic_id, payload, qos=qos, retained=True))
        wait_for(lambda: len(inbox.done) == len(sent))
    short = client.subscribe("xy", 0)
    wait_for(lambda: inbox.of("xy"))  # its own messages come back as well
    outcome = {
        "subscribed": [granted, topic_id],
        "short": list(short),
        "acknowledged": inbox.done == sent,
        "messages": inbox.of("xy"),
    }
    print("\n" + json.dumps(outcome), flush=True)


main()
