"""Certificates for tests, made on the spot with the openssl command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

EXTENSIONS = {
    "server": "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n",
    "client": "extendedKeyUsage=clientAuth\n",
}


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.chain = ""  # what stands between its certificates and the root
        self.ca = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            *("req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(self._key), "-out", str(self.ca)),
        )

    def issue(self, name: str, use: str) -> tuple[Path, Path]:
        """A certificate for `use` ("server" or "client") whose common name is `name`; returns certificate and key."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(EXTENSIONS[use])
        _openssl(
            *("req", "-new", "-nodes", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-extfile", str(extensions)),
            *("-CA", str(self.ca), "-CAkey", str(self._key), "-CAcreateserial", "-out", str(certificate)),
        )
        certificate.write_text(certificate.read_text() + self.chain)
        return certificate, key

    def below(self, name: str) -> Authority:
        """An authority whose certificate this one has signed. What it issues comes with that certificate."""
        below = Authority(self.folder / name, name)
        request, extensions = below.folder / "ca.csr", below.folder / "ca.ext"
        extensions.write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n")
        _openssl("req", "-new", "-subj", f"/CN={name}", "-key", str(below._key), "-out", str(request))
        _openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-extfile", str(extensions)),
            *("-CA", str(self.ca), "-CAkey", str(self._key), "-CAcreateserial", "-out", str(below.ca)),
        )
        below.chain = below.ca.read_text()
        return below

    def trusting(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority alone, with its own certificate if given."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"openssl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
