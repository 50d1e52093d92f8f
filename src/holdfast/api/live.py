"""The live channel of the dashboard: a WebSocket on which a page says what it shows and hears when that changes.

The page names topics and places in the tree. A few times a second those are looked up, and what differs from last time
is sent. So a page costs the same whether the broker moves ten messages a second or a million: publishes are not
touched, and nobody is subscribed.

Who is on the channel is asked before each step, and whether they may see a message for each message: the channel of
someone who has logged out, was removed or has to log in again ends with 4401.
"""

import asyncio
import json
from collections import Counter
from typing import Any, cast

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from holdfast.api.auth import Identity, address_of
from holdfast.api.services import Services
from holdfast.service.caller import Caller
from holdfast.service.messages import summary_of

router = APIRouter()

STEP_S = 0.5
WATCHED_MOST = 500
CHANNELS_MOST = 200
CHANNELS_OF_ONE = 50


class Channels:
    """How many are open, by the name of who has them; nobody is to keep the others out."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()

    def are_too_many(self, name: str) -> bool:
        """Whether one more of that user's would be; where nobody logs in, all are one."""
        return self.open.total() >= CHANNELS_MOST or (name != "" and self.open[name] >= CHANNELS_OF_ONE)

    def end(self, name: str) -> None:
        self.open[name] -= 1
        if not self.open[name]:
            del self.open[name]


class Watch:
    """What one page shows, and what it was last told of it."""

    def __init__(self, services: Services, caller: Caller) -> None:
        self.services = services
        self.caller = caller
        self.topics: dict[str, int] = {}
        self.places: dict[str | None, int] = {}
        self.version = -1

    def show(self, asked: Any) -> None:
        """A new list of what is shown; malformed parts of it are left out."""
        if not isinstance(asked, dict):
            return
        topics = asked.get("topics", [])
        places = asked.get("places", [])
        if isinstance(topics, list):
            wanted = [topic for topic in topics[:WATCHED_MOST] if isinstance(topic, str)]
            self.topics = {
                topic: self.topics.get(topic, -1)
                for topic in wanted
                if self.caller.may_read(topic.encode(errors="replace"))
            }
        if isinstance(places, list) and self.caller.sees_all:
            known = self.places
            shown = [place for place in places[:WATCHED_MOST] if place is None or isinstance(place, str)]
            self.places = {place: known.get(place, -2) for place in shown}
        self.version = -1

    def changes(self) -> dict[str, object]:
        """What is different from last time; empty when nothing is."""
        source = self.services.source
        version = source.last_change
        # Nothing was set, deleted or expired. $SYS topics change without a new version; they wait for the next one.
        if version == self.version:
            return {}
        self.version = version
        messages: list[dict[str, object]] = []
        gone: list[str] = []
        for topic, known in self.topics.items():
            message = source.get(topic.encode(errors="replace"))
            if message is not None and not self.caller.may_see(message):
                message = None
            offset = 0 if message is None else message.offset
            if offset == known:
                continue
            self.topics[topic] = offset
            if message is not None:
                messages.append(summary_of(message, self.caller))
            elif known > 0:
                gone.append(topic)
        places: list[dict[str, object]] = []
        for place, size in self.places.items():
            now = self.services.tree.size_of(None if place is None else place.encode(errors="replace").decode())
            if now != size:
                self.places[place] = now
                if size != -2:
                    places.append({"place": place, "children": now})
        if not messages and not gone and not places:
            return {}
        return {"messages": messages, "gone": gone, "places": places, "version": version}


@router.websocket("/api/v1/live")
async def live(socket: WebSocket) -> None:
    services = cast(Services, socket.app.state.services)
    identity = cast(Identity, socket.state.identity)
    channels, name = cast(Channels, socket.app.state.channels), identity.caller.name
    if channels.are_too_many(name):
        await socket.close(4503, "too many pages are open")
        return
    await socket.accept()
    channels.open[name] += 1
    watch = Watch(services, identity.caller)
    reader = asyncio.create_task(listen(socket, watch), name="holdfast-live")
    try:
        while not reader.done():
            if not services.authenticator.still_believes(identity, address_of(socket)):
                await socket.close(4401, "log in again")
                break
            body = {"overview": services.metrics_history.overview(0), **watch.changes()}
            await socket.send_text(json.dumps(body))
            await asyncio.wait([reader], timeout=STEP_S)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the page is gone
    finally:
        channels.end(name)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def listen(socket: WebSocket, watch: Watch) -> None:
    while True:
        text = await socket.receive_text()
        try:
            watch.show(json.loads(text))
        except ValueError:
            continue
