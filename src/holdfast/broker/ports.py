"""What the core needs of the world. The rooms above implement these; only the composition root names a concrete one."""

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """The far end of a connection, as the core sees it. None of these may call back into the core."""

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close once everything written has left; `reason` is for diagnostics."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """Says who may connect. The answer comes later, through `Broker.on_authenticated`."""

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        raise NotImplementedError
