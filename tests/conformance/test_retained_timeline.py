"""One story with four subscribers and one publisher, told twice.

The story names RETAIN for its first two publishes only. Reading "literal" takes the later ones (`off`, then empty) as
plain messages: they reach who listens and leave the store alone. Reading "retained" takes them as retained: they
replace and finally delete. S1 and S2 see no difference, S3 and S4 do. Every step says what each subscriber must get.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stage import BOTH, ONLY_5, Actor, Copy, Stage

pytestmark = pytest.mark.told_clock

GARAGE, ROOM = "house/garage", "house/room"


@dataclass(frozen=True)
class Options:
    """Subscription options of the 5.0 variants: of everyone, and of those who come late."""

    as_published: bool = False
    late_handling: int = 0


@dataclass
class Story:
    stage: Stage
    version: int
    options: Options = Options()
    publisher: Actor = field(init=False)
    subscribers: dict[str, Actor] = field(init=False)

    def __post_init__(self) -> None:
        self.subscribers = {name: self.stage.client(self.version, name) for name in ("S1", "S2", "S3", "S4")}
        self.publisher = self.stage.client(self.version, "P")

    def subscribe(self, name: str, *topics: str) -> None:
        handling = self.options.late_handling if name != "S1" else 0
        self.subscribers[name].subscribe(*topics, rap=self.options.as_published, rh=handling)

    def publish(self, payload: str, *topics: str, retain: bool) -> None:
        for topic in topics:
            self.publisher.publish(topic, payload, retain=retain)

    def then(self, **expected: list[Copy]) -> None:
        """What each subscriber has got since the last step; who is not named got nothing."""
        for name, actor in self.subscribers.items():
            actor.receives(*expected.get(name, []))

    def live(self, topic: str, payload: str, *, published: bool) -> Copy:
        return Copy(topic, payload, retain=published and self.options.as_published)

    def at_subscribe(self, *copies: tuple[str, str]) -> list[Copy]:
        if self.options.late_handling == 2:
            return []
        return [Copy(topic, payload, retain=True) for topic, payload in copies]

    def begin(self) -> None:
        """Times 0 to 5, the same in both readings."""
        self.subscribe("S1", GARAGE)
        self.then()
        for payload in ("temp", "on"):
            self.publish(payload, GARAGE, retain=True)
            self.then(S1=[self.live(GARAGE, payload, published=True)])
        self.subscribe("S2", GARAGE)
        self.then(S2=self.at_subscribe((GARAGE, "on")))
        self.holds({GARAGE: b"on"})

    def holds(self, expected: dict[str, bytes]) -> None:
        assert self.stage.stored(self.version) == expected


def tell_literally(story: Story) -> None:
    story.begin()
    story.publish("off", GARAGE, ROOM, retain=False)
    off = story.live(GARAGE, "off", published=False)
    story.then(S1=[off], S2=[off])
    story.holds({GARAGE: b"on"})
    story.subscribe("S3", GARAGE, ROOM)
    story.then(S3=story.at_subscribe((GARAGE, "on")))
    story.publish("", GARAGE, ROOM, retain=False)
    empty = story.live(GARAGE, "", published=False)
    story.then(S1=[empty], S2=[empty], S3=[empty, story.live(ROOM, "", published=False)])
    story.holds({GARAGE: b"on"})
    story.subscribe("S4", GARAGE, ROOM)
    story.then(S4=story.at_subscribe((GARAGE, "on")))
    story.holds({GARAGE: b"on"})


def tell_as_retained(story: Story) -> None:
    story.begin()
    story.publish("off", GARAGE, ROOM, retain=True)
    off = story.live(GARAGE, "off", published=True)
    story.then(S1=[off], S2=[off])
    story.holds({GARAGE: b"off", ROOM: b"off"})
    story.subscribe("S3", GARAGE, ROOM)
    story.then(S3=story.at_subscribe((GARAGE, "off"), (ROOM, "off")))
    story.publish("", GARAGE, ROOM, retain=True)
    empty = story.live(GARAGE, "", published=True)
    story.then(S1=[empty], S2=[empty], S3=[empty, story.live(ROOM, "", published=True)])
    story.holds({})
    story.subscribe("S4", GARAGE, ROOM)
    story.then()
    story.holds({})


READINGS = pytest.mark.parametrize("tell", [tell_literally, tell_as_retained], ids=["literal", "retained"])


@BOTH
@READINGS
@pytest.mark.matrix("A2", "A3", "A8", "B1", "B2", "B4", "C1", "C2", "D1")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", "MQTT-3.3.1-9")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.3.1-12")
@pytest.mark.clause("5.0", "MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", "MQTT-3.3.1-9")
@pytest.mark.clause("5.0", "MQTT-3.3.1-12")
def test_the_story_of_the_garage(stage: Stage, version: int, tell: Callable[[Story], None]) -> None:
    tell(Story(stage, version))


@ONLY_5
@READINGS
@pytest.mark.matrix("B3", "D2")
@pytest.mark.clause("5.0", "MQTT-3.3.1-13")
def test_the_story_with_retain_as_published(stage: Stage, version: int, tell: Callable[[Story], None]) -> None:
    tell(Story(stage, version, Options(as_published=True)))


@ONLY_5
@READINGS
@pytest.mark.matrix("E3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-11")
def test_the_story_with_retain_handling_2_for_late_subscribers(
    stage: Stage, version: int, tell: Callable[[Story], None]
) -> None:
    tell(Story(stage, version, Options(late_handling=2)))


@ONLY_5
@READINGS
@pytest.mark.matrix("E2")
@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_the_story_with_retain_handling_1_for_late_subscribers(
    stage: Stage, version: int, tell: Callable[[Story], None]
) -> None:
    tell(Story(stage, version, Options(late_handling=1)))
