"""The dashboard's files under an address that changes with them.

All of them are read once, and every mention of `/static/` in them is given the hash of the whole: a page and the
modules it loads are then always of one version, whatever a browser has kept of another, and may be kept for ever. Only
the pages themselves are asked for anew each time.
"""

import hashlib
import mimetypes
from pathlib import Path

from fastapi.responses import Response
from starlette.requests import Request

TEXT = (".js", ".css", ".html", ".svg")
PREFIX = "/static/"
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"


class StaticFiles:
    """The files below a folder, by name."""

    def __init__(self, folder: Path) -> None:
        read = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        digest = hashlib.sha256()
        for name, content in read.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        self.hash = digest.hexdigest()[:12]
        versioned = f"{PREFIX}{self.hash}/".encode()
        self.files = {
            name: content.replace(PREFIX.encode(), versioned) if name.endswith(TEXT) else content
            for name, content in read.items()
        }

    def answer(self, path: str, request: Request) -> Response:
        """A file by what follows `/static/`: with the hash before its name it never changes."""
        version, _, name = path.rpartition("/")
        if version not in ("", self.hash) or name not in self.files:
            return Response("there is no such file, expected one of this version of the dashboard", 404)
        return self.file(name, request, FOR_EVER if version else ASK_AGAIN)

    def file(self, name: str, request: Request, keep: str = ASK_AGAIN) -> Response:
        headers = {"Cache-Control": keep, "ETag": f'"{self.hash}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"
        return Response(self.files[name], media_type=kind, headers=headers)
