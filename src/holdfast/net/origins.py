"""Which web pages may open a WebSocket here. Browsers say where a page comes from; other programs need not."""

from ipaddress import ip_address
from urllib.parse import urlsplit


class Origins:
    """`named` as in `https://ops.example`, or `*`. A loopback listener takes pages from loopback names only: a host
    name of somebody else's may point there too.
    """

    def __init__(self, named: list[str], is_loopback: bool) -> None:
        self.named = frozenset(named)
        self.is_loopback = is_loopback

    def allow(self, origin: bytes | None, host: str) -> bool:
        if origin is None or "*" in self.named:
            return True
        text = origin.decode("ascii", errors="replace").lower()
        if text in self.named:
            return True
        page = host_of(text)
        return bool(page) and page == host_of(f"//{host.lower()}") and (not self.is_loopback or is_local(page))


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
