import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from holdfast.errors import ConfigError
from holdfast.identity.tokens import Tokens

SECRET = "a secret of more than thirty-two bytes, for tests"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def tokens(folder: Path, key: bytes, algorithms: list[str], **wishes: Any) -> Tokens:
    path = folder / "key"
    path.write_bytes(key)
    options = {"username_claim": "sub", "issuer": "", "audience": "", "leeway_s": 0.0, **wishes}
    return Tokens(path, None, algorithms, **options)


def signed(key: Any, algorithm: str, **claims: Any) -> bytes:
    return jwt.encode({"sub": "alice", **claims}, key, algorithm, headers=claims.pop("headers", None)).encode()


@pytest.mark.parametrize("kind", ["HS256", "RS256", "ES256"])
def test_a_good_token_says_who_it_is_and_until_when(kind: str, tmp_path: Path) -> None:
    private = {"HS256": SECRET, "RS256": RSA, "ES256": EC}[kind]
    public = {"HS256": SECRET.encode(), "RS256": pem(RSA), "ES256": pem(EC)}[kind]
    known = tokens(tmp_path, public, [kind])
    expires = int(time.time()) + 60
    token = known.check("alice", signed(private, kind, exp=expires))
    assert token is not None
    assert (token.username, token.expires_at_ms) == ("alice", expires * 1000)
    forever = known.check(None, signed(private, kind))
    assert forever is not None
    assert forever.expires_at_ms == 0


def test_a_token_of_someone_else_is_refused(tmp_path: Path) -> None:
    assert tokens(tmp_path, SECRET.encode(), ["HS256"]).check("bob", signed(SECRET, "HS256")) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"nbf": int(time.time()) + 3600},
        {"aud": "another"},
        {"sub": ""},
        {"sub": "a\0b"},
    ],
)
def test_a_token_that_is_not_for_now_or_not_for_us_is_refused(claims: dict[str, Any], tmp_path: Path) -> None:
    assert tokens(tmp_path, SECRET.encode(), ["HS256"]).check(None, signed(SECRET, "HS256", **claims)) is None


def test_issuer_and_audience_must_be_the_ones_that_are_asked_for(tmp_path: Path) -> None:
    known = tokens(tmp_path, SECRET.encode(), ["HS256"], issuer="us", audience="broker")
    assert known.check(None, signed(SECRET, "HS256", iss="us", aud="broker")) is not None
    assert known.check(None, signed(SECRET, "HS256", iss="them", aud="broker")) is None
    assert known.check(None, signed(SECRET, "HS256", iss="us")) is None


def test_another_claim_may_hold_the_name(tmp_path: Path) -> None:
    known = tokens(tmp_path, SECRET.encode(), ["HS256"], username_claim="email")
    token = known.check(None, signed(SECRET, "HS256", email="a@b"))
    assert token is not None
    assert token.username == "a@b"
    assert known.check(None, signed(SECRET, "HS256")) is None


def b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def forged(header: dict[str, str], key: bytes | None) -> bytes:
    message = b64(json.dumps(header).encode()) + b"." + b64(b'{"sub": "alice"}')
    return message + b"." + (b64(hmac.digest(key, message, hashlib.sha256)) if key is not None else b"")


def test_a_token_without_a_signature_is_refused(tmp_path: Path) -> None:
    known = tokens(tmp_path, pem(RSA), ["RS256"])
    for name in ("none", "None", "NONE", ""):
        assert known.check(None, forged({"alg": name, "typ": "JWT"}, None)) is None


def test_the_public_key_is_not_taken_for_a_secret(tmp_path: Path) -> None:
    """The oldest trick with tokens: sign by HS256 with the public key, which everyone may know."""
    known = tokens(tmp_path, pem(RSA), ["RS256", "ES256"])
    assert known.check(None, forged({"alg": "HS256", "typ": "JWT"}, pem(RSA))) is None


def test_a_changed_token_is_refused(tmp_path: Path) -> None:
    known = tokens(tmp_path, SECRET.encode(), ["HS256"])
    good = signed(SECRET, "HS256")
    head, _, signature = good.split(b".")
    other = b64(b'{"sub": "admin"}')
    assert known.check(None, good) is not None
    assert known.check(None, head + b"." + other + b"." + signature) is None


def test_a_key_set_is_asked_by_key_id(tmp_path: Path) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    keys = []
    for name, key in (("one", RSA), ("two", other)):
        document = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        keys.append({**document, "kid": name, "alg": "RS256"})
    path = tmp_path / "jwks"
    path.write_text(json.dumps({"keys": keys}))
    known = Tokens(None, path, ["RS256"], "sub", "", "", 0.0)
    assert known.check(None, signed(RSA, "RS256", headers={"kid": "one"})) is not None
    assert known.check(None, jwt.encode({"sub": "a"}, other, "RS256", headers={"kid": "one"}).encode()) is None
    assert known.check(None, jwt.encode({"sub": "a"}, other, "RS256", headers={"kid": "two"}).encode()) is not None


@pytest.mark.parametrize("password", [None, b"", b"secret", b"ey..", b"eyJ.eyJ.x", b"\xff.\xff.\xff", b"ey" + b"." * 5])
def test_what_is_no_token_is_refused(password: bytes | None, tmp_path: Path) -> None:
    assert tokens(tmp_path, SECRET.encode(), ["HS256"]).check("alice", password) is None


@pytest.mark.parametrize(
    ("content", "algorithms"),
    [(b"short", ["HS256"]), (b"", ["HS256"]), (pem(RSA), ["HS256"]), (b"no key", ["RS256", "ES256"])],
)
def test_a_key_that_cannot_be_one_is_an_error_at_start(content: bytes, algorithms: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected"):
        tokens(tmp_path, content, algorithms)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}'])
def test_a_key_set_without_a_usable_key_is_an_error_at_start(content: str, tmp_path: Path) -> None:
    path = tmp_path / "jwks"
    path.write_text(content)
    with pytest.raises(ConfigError):
        Tokens(None, path, ["RS256"], "sub", "", "", 0.0)
