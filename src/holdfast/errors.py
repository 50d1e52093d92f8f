"""One exception tree; whose fault it is stands in the type.

    HoldfastError
    ├── ProtocolError     the peer's: bytes or packets that the specification forbids; carries the reason code to answer
    │   └── MalformedPacket
    ├── UsageError        ours or the operator's: a call or a setting that cannot be carried out as given
    │   └── ConfigError
    └── StoreError        the disk's: something that should have been kept or read could not be
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


class UsageError(HoldfastError):
    """The caller or operator asked for something that cannot be done."""


class ConfigError(UsageError):
    """A setting is unknown, or its value is not usable."""


class StoreError(HoldfastError):
    """The disk refused, or gave back something damaged."""
