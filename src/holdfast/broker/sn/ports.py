"""What the sensors' side needs of the world: datagrams to addresses, which the core only compares and hands back."""

from mypy_extensions import mypyc_attr

from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.protocol.sn.frame import Envelope


@mypyc_attr(allow_interpreted_subclasses=True)
class DatagramPeer(Peer):
    """One client at an address, perhaps behind a forwarder. `write` takes whole packets, one behind the other."""

    def attach(self, connection: Connection) -> None:
        """The connection that this is the far end of."""
        raise NotImplementedError

    def move(self, address: object, envelope: Envelope | None) -> None:
        """The client is somewhere else now."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Datagrams:
    def open(self, address: object, envelope: Envelope | None) -> DatagramPeer:
        raise NotImplementedError

    def send(self, packet: bytes, address: object, envelope: Envelope | None) -> None:
        """One packet to someone who has no connection."""
        raise NotImplementedError
