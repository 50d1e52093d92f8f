"""What an operator may want to have seen: who came, who left and why, who was turned away, and what was denied."""

from typing import Final, final

from holdfast.broker.session import Connection

CONNECTED: Final = "client connected"
DISCONNECTED: Final = "client disconnected"
LOGIN_FAILED: Final = "login failed"
CONNECT_REFUSED: Final = "connect refused"
PUBLISH_DENIED: Final = "publish denied"
SUBSCRIBE_DENIED: Final = "subscribe denied"


@final
class Seen:
    """One event of a client. `username` is the name that it has proven, or what may be shown of the one that a client
    gave which was refused.
    """

    def __init__(
        self, event: str, connection: Connection, client_id: str, username: str, detail: dict[str, object]
    ) -> None:
        self.event: Final = event
        self.connection: Final = connection
        self.client_id: Final = client_id
        self.username: Final = username
        self.detail: Final = detail
