"""One exception tree; whose fault it is stands in the type.

HoldfastError
├── ProtocolError     the peer's: bytes or packets that the specification forbids; carries the reason code to answer
│   ├── MalformedPacket
│   └── UnsupportedProtocol
├── ConnectionFailed  the network's or the other broker's: not reached, refused, or gone; carries the code it gave
│   ├── ConnectionLost
│   ├── Refused
│   └── NoAnswer
├── UsageError        ours or the operator's: a call or a setting that cannot be carried out as given
│   ├── ConfigError
│   ├── NotFound
│   ├── NotAllowed
│   └── TooLarge
└── StoreError        the disk's: something that should have been kept or read could not be

Two stand below the root elsewhere, with what raises them: `cli.api_client.ApiError`, what a broker's HTTP API answered,
and the load generator's `LoadError`.
"""


class HoldfastError(Exception):
    """The root of everything this package raises on purpose."""


class ProtocolError(HoldfastError):
    """The peer broke the protocol. `reason` is the MQTT 5 reason code to send back."""

    def __init__(self, message: str, reason: int = 0x82) -> None:
        super().__init__(message)
        self.reason = reason


class MalformedPacket(ProtocolError):
    """The bytes cannot be a packet."""

    def __init__(self, message: str, reason: int = 0x81) -> None:
        super().__init__(message, reason)


class UnsupportedProtocol(ProtocolError):
    """A CONNECT for a protocol name or level that is not spoken here.

    `known_name` says whether the name was MQTT's: only then does CONNACK 0x01 answer the unknown level
    [3.1.1: MQTT-3.1.2-2]; with a foreign name the connection is closed without a word [3.1.1: MQTT-3.1.2-1].
    """

    def __init__(self, message: str, level: int, known_name: bool) -> None:
        super().__init__(message, 0x84)
        self.level = level
        self.known_name = known_name


class ConnectionFailed(HoldfastError):
    """A broker was not reached, refused us, or went away. `reason` is the code it gave, 0 when it gave none."""

    def __init__(self, message: str, reason: int = 0) -> None:
        super().__init__(message)
        self.reason = reason


class ConnectionLost(ConnectionFailed):
    """A connection that had been made is gone."""


class Refused(ConnectionFailed):
    """A server was reached and will not have us, or we it: waiting does not help."""


class NoAnswer(ConnectionFailed):
    """A request was not answered: nobody there to answer, or not in time."""


class UsageError(HoldfastError):
    """The caller or operator asked for something that cannot be done."""


class ConfigError(UsageError):
    """A setting is unknown, or its value is not usable."""


class NotFound(UsageError):
    """What was asked for is not there."""


class NotAllowed(UsageError):
    """Whoever asked may not do that, or nobody may."""


class TooLarge(UsageError):
    """What was given is larger than a limit."""


class StoreError(HoldfastError):
    """The disk refused, or gave back something damaged."""
