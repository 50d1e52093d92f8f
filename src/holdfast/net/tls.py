"""TLS contexts for listeners, made so that certificates can be changed under a running server."""

import ssl
from pathlib import Path

from holdfast.errors import ConfigError

MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Certificates:
    """The files of one TLS listener. `reload` puts new ones into the context that is already listening."""

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
        if cert is None:
            raise ConfigError("a tls:// or wss:// listener needs tls.cert, or ?cert= in its URL")
        self.cert = cert
        self.key = key
        self.ca = ca
        self.crl = crl
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that asks for a new handshake again and again would cost far more here than it costs itself.
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self.context.minimum_version = MINIMUM[minimum]
        if ciphers:
            try:
                self.context.set_ciphers(ciphers)
            except ssl.SSLError as error:
                raise ConfigError(f"tls.ciphers {ciphers!r} is not usable: {error}") from None
        if require_client and ca is None:
            raise ConfigError("client certificates are required, but tls.ca does not say who may sign them")
        if ca is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_OPTIONAL
        if crl is not None:
            # Every certificate of the chain is looked up, so an authority in between can be revoked too. From now on a
            # chain with an authority that has no list, or an outdated one, is refused.
            self.context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        self.reload()

    def reload(self) -> None:
        """Read the files; raises ConfigError and changes nothing that is in use when one is not readable."""
        try:
            self.context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot load the certificate {self.cert}: {error}") from None
        if self.ca is not None:
            try:
                self.context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"cannot load the certificate authority {self.ca}: {error}") from None
        if self.crl is not None:
            self.reload_revoked(self.crl)

    def reload_revoked(self, crl: Path) -> None:
        """Lists add up; of two from one authority the newer counts."""
        try:
            if b"X509 CRL" not in crl.read_bytes():
                raise ConfigError(f"{crl}: expected a revocation list (PEM), got none")
            self.context.load_verify_locations(crl)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot load the revocation list {crl}: {error}") from None
