"""JSON Web Tokens as passwords (RFC 7519), checked with PyJWT.

The algorithm comes from the configuration and never from the token, and a key is used only for the kind of signature it
is made for: a public key is no HS256 secret. A token without `exp` is as good as a password and is taken as one.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from jwt.types import Options

from holdfast.errors import ConfigError

NEVER_MS: Final = 0
SECRET_LEAST: Final = 32
# JWK key types by algorithm.
KINDS: Final = {"HS256": "oct", "RS256": "RSA", "ES256": "EC"}


@dataclass(frozen=True)
class Token:
    """What a good token says, and the digest of the key it is signed with. `expires_at_ms` may be NEVER_MS."""

    username: str
    expires_at_ms: int
    key_digest: str


class Tokens:
    """The keys, read once, and what a token must say."""

    def __init__(
        self,
        key_file: Path | None,
        jwks_file: Path | None,
        algorithms: list[str],
        username_claim: str,
        issuer: str,
        audience: str,
        leeway_s: float,
    ) -> None:
        self.algorithms = algorithms
        self.username_claim = username_claim
        self.issuer = issuer
        self.audience = audience
        self.leeway_s = leeway_s
        self.key: Any = read_key(key_file, algorithms) if key_file is not None else None
        self.key_digest = digest_of(key_file.read_bytes().strip()) if key_file is not None else ""
        self.keys: list[tuple[jwt.PyJWK, str]] = read_jwks(jwks_file, algorithms) if jwks_file is not None else []
        self.digests = frozenset([digest for _, digest in self.keys] + [self.key_digest])

    def recognises(self, password: bytes | None) -> bool:
        """Whether a password has the looks of a token."""
        return password is not None and password.count(b".") == 2 and password.startswith(b"ey")

    def check(self, username: str | None, password: bytes | None) -> Token | None:
        """Returns the user a token stands for; None when it is not good, or names another user than the client does."""
        if not self.recognises(password):
            return None
        assert password is not None
        try:
            header = jwt.get_unverified_header(password)
        except jwt.InvalidTokenError:
            return None
        for algorithm, key, digest in self.candidates(header):
            claims = self.decode(password, key, algorithm)
            if claims is not None:
                return self.accept(claims, username, digest)
        return None

    def candidates(self, header: dict[str, Any]) -> list[tuple[str, Any, str]]:
        algorithm = header.get("alg")
        if algorithm not in self.algorithms:
            return []
        wanted = header.get("kid")
        found: list[tuple[str, Any, str]] = []
        for key, digest in self.keys:
            if key.key_type == KINDS[algorithm] and (wanted is None or key.key_id is None or key.key_id == wanted):
                found.append((algorithm, key.key, digest))
        if self.key is not None:
            found.append((algorithm, self.key, self.key_digest))
        return found

    def decode(self, password: bytes, key: Any, algorithm: str) -> dict[str, Any] | None:
        options: Options = {"require": [self.username_claim], "verify_aud": True}
        try:
            return jwt.decode(
                password,
                key,
                algorithms=[algorithm],
                options=options,
                issuer=self.issuer or None,
                audience=self.audience or None,
                leeway=self.leeway_s,
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None

    def accept(self, claims: dict[str, Any], username: str | None, key_digest: str) -> Token | None:
        name = claims.get(self.username_claim)
        if not isinstance(name, str) or not name or "\0" in name:
            return None
        if username and username != name:
            return None
        expires = claims.get("exp")
        if expires is None:
            return Token(name, NEVER_MS, key_digest)
        return Token(name, int((float(expires) + self.leeway_s) * 1000), key_digest)


def read_key(path: Path, algorithms: list[str]) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the token key {path}: {(error.strerror or str(error)).lower()}") from None
    if algorithms == ["HS256"]:
        secret = data.strip()
        if len(secret) < SECRET_LEAST or b"-----BEGIN" in secret:
            raise ConfigError(f"{path}: expected a secret of at least {SECRET_LEAST} bytes for HS256")
        return secret
    last: Exception | None = None
    for algorithm in algorithms:
        try:
            return jwt.get_algorithm_by_name(algorithm).prepare_key(data)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            last = error
    raise ConfigError(f"{path}: expected a public key (PEM) for {' or '.join(algorithms)}: {last}")


def digest_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def read_jwks(path: Path, algorithms: list[str]) -> list[tuple[jwt.PyJWK, str]]:
    """Returns the usable keys, each with its digest."""
    try:
        document = json.loads(path.read_bytes())
        jwt.PyJWKSet.from_dict(document)  # its errors say what is wrong with the whole
        # One by one, since a key of the set does not say which entry it was made from.
        paired = [(key, entry) for entry in document["keys"] for key in keys_of(entry)]
    except (OSError, ValueError, AttributeError, TypeError, jwt.PyJWTError) as error:
        raise ConfigError(f"cannot use the key set {path}: {error}") from None
    kinds = {KINDS[algorithm] for algorithm in algorithms}
    usable = [
        (key, digest_of(json.dumps(entry, sort_keys=True).encode())) for key, entry in paired if key.key_type in kinds
    ]
    if not usable:
        raise ConfigError(f"{path}: expected a key for {' or '.join(algorithms)}, got none")
    return usable


def keys_of(entry: Any) -> list[jwt.PyJWK]:
    """Returns the key that an entry of a set is, or nothing for one that cannot be used."""
    try:
        return [jwt.PyJWK(entry)]
    except jwt.PyJWTError:
        return []
