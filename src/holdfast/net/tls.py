"""TLS for listeners, made so that certificates, authorities and revocations can be changed under a running server.

A context is never changed once it is in use: authorities can be added to one, but not taken away. Each reload makes a
new one, for the handshakes that begin after it.
"""

import asyncio
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

MINIMUM: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CRL_BEGIN: Final = b"-----BEGIN X509 CRL-----"


class DoorContext(ssl.SSLContext):
    """What a listener is given: hands each new connection to the context that is in force at the time."""

    current: ssl.SSLContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **options)


class Trust:
    """A context with all that it was made from: the authorities by their certificates, and what they have revoked."""

    def __init__(
        self,
        cert: Path | None,
        key: Path | None,
        ca: Path | None,
        require_client: bool,
        minimum: str = "1.2",
        ciphers: str = "",
        crl: Path | None = None,
    ) -> None:
        """Raises ConfigError when one of the files cannot be used."""
        if cert is None:
            raise ConfigError("a tls:// or wss:// listener needs tls.cert, or ?cert= in its URL")
        if require_client and ca is None:
            raise ConfigError("client certificates are required, but tls.ca does not say who may sign them")
        context = self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that asks for a new handshake again and again would cost far more here than it costs itself.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.minimum_version = MINIMUM[minimum]
        self.revoked: list[x509.CertificateRevocationList] = []
        if ciphers:
            try:
                context.set_ciphers(ciphers)
            except ssl.SSLError as error:
                raise ConfigError(f"tls.ciphers {ciphers!r} is not usable: {error}") from None
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot load the certificate {cert}: {error}") from None
        if ca is not None:
            self.trust(ca, require_client)
        if crl is not None:
            self.revoke(crl)
        self.authorities = frozenset(context.get_ca_certs(binary_form=True))

    def trust(self, ca: Path, require_client: bool) -> None:
        context = self.context
        context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_OPTIONAL
        # In a resumed session OpenSSL does not look at the certificate again. Sessions end with their context, at the
        # next reload; tickets are of no use until then, and `objection` looks at what TLS 1.2 resumes without them.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot load the certificate authority {ca}: {error}") from None

    def revoke(self, crl: Path) -> None:
        # Every certificate of the chain is looked up, so an authority in between can be revoked too. A chain with an
        # authority that has no list, or an outdated one, is refused.
        self.context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        try:
            data = crl.read_bytes()
            if CRL_BEGIN not in data:
                raise ConfigError(f"{crl}: expected a revocation list (PEM), got none")
            self.context.load_verify_locations(crl)
            from cryptography import x509  # it takes memory that a broker without revocation lists has no use for

            self.revoked = [x509.load_pem_x509_crl(CRL_BEGIN + part) for part in data.split(CRL_BEGIN)[1:]]
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(f"cannot load the revocation list {crl}: {error}") from None

    def has_revoked(self, certificate: bytes) -> bool:
        from cryptography import x509

        found = x509.load_der_x509_certificate(certificate)
        return any(
            found.issuer == revocations.issuer
            and revocations.get_revoked_certificate_by_serial_number(found.serial_number) is not None
            for revocations in self.revoked
        )


class Certificates:
    """What one TLS listener trusts and shows. `context` stays the same; `use` changes what stands behind it."""

    def __init__(self, trust: Trust) -> None:
        self.context = DoorContext(ssl.PROTOCOL_TLS_SERVER)
        self.lost = False  # the last change took an authority away, or revoked one
        self.use(trust)

    def use(self, trust: Trust) -> None:
        before = getattr(self, "trust", trust)
        self.lost = any(
            authority not in trust.authorities or (trust.has_revoked(authority) and not before.has_revoked(authority))
            for authority in before.authorities
        )
        self.trust = trust
        self.context.current = trust.context

    def objection(self, transport: asyncio.BaseTransport | None) -> str:
        """What speaks against a handshake that has just ended; nothing when it is good."""
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        if tls is None:
            return ""
        if tls.context is not self.trust.context:
            return "the certificates were changed during the handshake"
        certificate = tls.getpeercert() if tls.session_reused else None
        if certificate and ssl.cert_time_to_seconds(certificate["notAfter"]) < time.time():
            return "the certificate of the resumed session has expired"
        return ""

    def refuse(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether a client that is connected has to go: its certificate is revoked, or an authority is not trusted any
        more. Which one vouched for it is not known by now, so all clients have to come in again then.
        """
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = tls.getpeercert(True) if tls is not None else None
        return certificate is not None and (self.lost or self.trust.has_revoked(certificate))
